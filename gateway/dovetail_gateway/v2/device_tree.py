"""The cluster's devices as a tree of text, which the gateway prints at its start. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dovetail.answers.inventory import NodeUse
from dovetail.api.gpujob import GPUJob
from dovetail.gpu.device_indexes import NodeDevice
from dovetail.query.nodes.device_facts import device_line, fact_lines, node_line
from dovetail_gateway.v2.devices import usage_of
from dovetail_gateway.v2.types import Counts

# A start in a large cluster prints only the first nodes; GET /api/v2/resources/gpu has them all.
MOST_NODES: Final = 8
_NONE: Final = Counts(training=0, inference=0)


def device_tree(nodes: Sequence[NodeUse], *, jobs: Iterable[GPUJob]) -> str:
    """For each device its model, memory, temperature, load and tasks; or that there is none."""
    if not any(node.uses for node in nodes):
        return "this cluster has no GPUs"
    usage = usage_of(jobs)
    lines = [line for node in nodes[:MOST_NODES] for line in _node(node, usage=usage)]
    rest = len(nodes) - MOST_NODES
    return "\n".join([*lines, f"… and {rest} more nodes: GET /api/v2/resources/gpu"] if rest > 0 else lines)


def _node(node: NodeUse, *, usage: dict[NodeDevice, Counts]) -> Iterator[str]:
    yield node_line(node.name, status=node.gpunode.status)
    for at, use in enumerate(node.uses, start=1):
        is_last = at == len(node.uses)
        yield ("└── " if is_last else "├── ") + device_line(use.device, reason=use.reason)
        counts = usage.get(NodeDevice(node.name, use.device.index), _NONE)
        others = max(0, len(use.holders) - counts.training - counts.inference)
        facts = fact_lines(use.device, training=counts.training, inference=counts.inference, others=others)
        margin = "    " if is_last else "│   "
        if not use.is_measured:
            continue
        yield from (f"{margin}{'└──' if fact is facts[-1] else '├──'} {fact}" for fact in facts)
