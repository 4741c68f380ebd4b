"""Prints the node's devices once as a tree, when the agent starts.

A module of its own: a feature, of which `features` only builds the list.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from dovetail.api.gpunode import Device, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.query.nodes.device_facts import device_line, fact_lines, node_line
from dovetail_agent.feature.protocol import Feature, Seen

if TYPE_CHECKING:
    from rich.tree import Tree

_WIDTH: Final = 120
# An agent that serves all simulated nodes shows only the first of them; `ginfo` shows them all.
_MOST: Final = 8


class StartupTree(Feature):
    """Prints each node when its devices are first read."""

    name = "startup"

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: set[str] = set()

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Print a node once, and only a few nodes."""
        name = seen.node.metadata.name
        if seen.sample is None or name in self._shown or len(self._shown) >= _MOST:
            return
        self._shown.add(name)
        show(node_tree(name, status=status, tenants=seen.tenants), out=self._out)


def show(tree: "Tree", *, out: TextIO) -> None:
    """Print the tree: in colours on a terminal, otherwise as plain lines."""
    from rich.console import Console  # noqa: PLC0415 - memory that only the first minute needs

    Console(file=out, width=None if out.isatty() else _WIDTH, highlight=False).print(tree)
    out.flush()


def node_tree(name: str, *, status: GPUNodeStatus, tenants: Sequence[NodeTenant]) -> "Tree":
    """Build a node's tree: for each device its model, memory, temperature, load and tenants."""
    from rich.text import Text  # noqa: PLC0415 - as above
    from rich.tree import Tree  # noqa: PLC0415 - as above

    tree = Tree(Text(node_line(name, status=status), style="bold"))
    for device in status.devices:
        reason = "" if device.health == "Healthy" else f"unhealthy: {device.health_reason}"
        branch = tree.add(Text(device_line(device, reason=reason), style="red" if reason else "green"))
        for line in _facts(device, tenants=tenants):
            branch.add(Text(line))
    return tree


def _facts(device: Device, *, tenants: Sequence[NodeTenant]) -> Iterator[str]:
    """Count tenants by purpose. Those without one are counted separately."""
    here = [tenant for tenant in tenants if any(each.uuid == device.uuid for each in tenant.devices)]
    counts = Counter(tenant.workload for tenant in here)
    yield from fact_lines(device, training=counts["Training"], inference=counts["Inference"], others=counts[None])
