"""The link between host and node: a veth pair, and a route to the node's pods.

The node's end, its rules and its pods' links live in the node's network namespace and end with it; the host's
end goes with its peer. Nothing else of the host's network is touched.
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
    """A block that no route of the host covers: the candidate with the number `first`, or else the next that is free.

    `first` is best another one at each start: the API server keeps connections, and one to the node that had this
    address before would fail the first `kubectl logs`.
    """
    blocks = list(CANDIDATES.subnets(new_prefix=24))
    start = first % len(blocks)
    routes = list(taken)
    for block in blocks[start:] + blocks[:start]:
        if not any(block.overlaps(route) for route in routes):
            return NodeNetwork(block=block)
    raise RealNodeError(f"No free network for the real node: the host has routes into all of {CANDIDATES}.")


def host_routes() -> list[IPv4Network]:
    """Where the host's routes lead, the default route aside."""
    routes = decode(call("ip", "-json", "-4", "route", "show", "table", "all") or "[]", as_type=list[dict[str, Any]])
    destinations = [route["dst"] for route in routes if route["dst"] != "default"]
    return [IPv4Network(destination, strict=False) for destination in destinations]


def connect(layout: Layout, *, network: NodeNetwork, node_pid: int) -> None:
    """Makes the pair, gives one end to the node's namespace, and tells the host the way to the pods."""
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
    """Removes the host's end, which the node's end takes along when the kernel comes to it: now, before, or later."""
    try:
        call("ip", "link", "delete", layout.host_interface)
    except CommandError:
        if succeeds(["ip", "link", "show", layout.host_interface]):
            raise
