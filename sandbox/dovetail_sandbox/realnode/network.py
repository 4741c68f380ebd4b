"""The link between host and node: a veth pair, and a route to the node's pods.

The node's end, its rules and its pods' links belong to the node's network namespace and end with it. The host's end
disappears with its peer. Nothing else in the host's network changes.

A module of its own: the part of a node that needs `ip`; `node` puts the parts together.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network
from typing import Any

from dovetail.decoding import decode
from dovetail_sandbox.realnode.commands import call, succeeds
from dovetail_sandbox.realnode.errors import CommandError, RealNodeError
from dovetail_sandbox.realnode.layout import Layout, NodeNetwork

NODE_INTERFACE = "eth0"
CANDIDATES = IPv4Network("10.213.0.0/16")  # one /24 for each real node on this machine


def choose(*, taken: Iterable[IPv4Network], first: int) -> NodeNetwork:
    """Return a block that no route of the host covers: number `first`, or the next free one.

    `first` should differ at each start: the API server keeps connections, and one to a former node with this address
    would fail the first `kubectl logs`. Raises `RealNodeError` if none is free.
    """
    blocks = list(CANDIDATES.subnets(new_prefix=24))
    start = first % len(blocks)
    routes = list(taken)
    for block in blocks[start:] + blocks[:start]:
        if not any(block.overlaps(route) for route in routes):
            return NodeNetwork(block=block)
    raise RealNodeError(f"No free network for the real node: the host has routes into all of {CANDIDATES}.")


def host_routes() -> list[IPv4Network]:
    """The destinations of the host's routes, except the default route."""
    routes = decode(call("ip", "-json", "-4", "route", "show", "table", "all") or "[]", as_type=list[dict[str, Any]])
    destinations = [route["dst"] for route in routes if route["dst"] != "default"]
    return [IPv4Network(destination, strict=False) for destination in destinations]


def connect(layout: Layout, *, network: NodeNetwork, node_pid: int) -> None:
    """Create the pair, move one end to the node's namespace, add the host's route to the pods."""
    host = layout.host_interface
    call("ip", "link", "add", host, "type", "veth", "peer", "name", NODE_INTERFACE, "netns", node_pid)
    call("ip", "address", "add", f"{network.host_address}/{network.link_prefix}", "dev", host)
    call("ip", "link", "set", host, "up")
    in_node = ("nsenter", "--net", f"--target={node_pid}", "ip")
    call(*in_node, "link", "set", "lo", "up")
    call(*in_node, "address", "add", f"{network.node_address}/{network.link_prefix}", "dev", NODE_INTERFACE)
    call(*in_node, "link", "set", NODE_INTERFACE, "up")
    call(*in_node, "route", "add", "default", "via", network.host_address)
    # Last: the node's first process takes its default route as the sign that it is connected.
    call("ip", "route", "add", network.pods, "via", network.node_address)


def disconnect(layout: Layout) -> None:
    """Remove the host's end. The kernel removes it with the node's end too, earlier or later."""
    try:
        call("ip", "link", "delete", layout.host_interface)
    except CommandError:
        if succeeds(["ip", "link", "show", layout.host_interface]):
            raise
