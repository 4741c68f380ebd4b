"""The devices of a cluster as a tree of text, which `gflowd up` and the gateway print at their start. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from dovetail.answers.inventory import NodeUse
from dovetail.answers.node_rows import tenant_counts
from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.availability import unreadable
from dovetail.cluster.node_kind import serving
from dovetail.config.settings import Settings
from dovetail.formats.durations import human
from dovetail.formats.timestamps import moment
from dovetail.query.nodes.device_facts import device_line, fact_lines, node_line

# How long a start waits for the first report of each node.
PATIENCE_SECONDS: Final = 10.0
# A large cluster shows only its first nodes.
MOST_NODES: Final = 8
# A report may come this much later than the heartbeat says.
_LATE: Final = timedelta(seconds=60)


def silent_nodes(
    nodes: Iterable[Node], *, gpunodes: Mapping[str, GPUNode], settings: Settings, now: datetime
) -> dict[str, str]:
    """Why a node with GPUs has no report of now, by its name; a node whose agent reports is not in it."""
    found: dict[str, str] = {}
    for node in nodes:
        name, serves = node.metadata.name, serving(node, vendors=settings.vendors)
        report = gpunodes.get(name)
        if not (serves.managed or serves.resource or report):
            continue
        if why := _silence(report, node=node, heartbeat_seconds=settings.heartbeat_interval, now=now):
            found[name] = why
    return found


def device_tree(nodes: Mapping[str, NodeUse], *, silent: Mapping[str, str]) -> str:
    """For each node its devices with their memory, temperature, load and tasks, or why there are none.

    `nodes` are those that report, by name; `silent` says of each other node why its report is missing.
    """
    names = sorted({*nodes, *silent})
    if not names:
        return "this cluster has no GPUs"
    lines: list[str] = []
    for name in names[:MOST_NODES]:
        lines += [f"{name}: {silent[name]}"] if name in silent else _node(nodes[name])
    rest = len(names) - MOST_NODES
    return "\n".join([*lines, f"… and {rest} more nodes: ginfo lists all"] if rest > 0 else lines)


def _silence(report: GPUNode | None, *, node: Node, heartbeat_seconds: float, now: datetime) -> str:
    status = report and report.status
    if not status or not status.observed_at:
        return "its agent has not reported its devices"
    booted = node.status.node_info.boot_id
    if booted and status.boot_id and booted != status.boot_id:
        return "its agent has not reported since the node has booted"
    age = now - moment(status.observed_at)
    if age > timedelta(seconds=heartbeat_seconds) + _LATE:
        return f"its agent has been silent for {human(age.total_seconds())}"
    return ""


def _node(node: NodeUse) -> Iterator[str]:
    line = node_line(node.name, status=node.gpunode.status)
    if problem := unreadable(node.gpunode):
        yield f"{line}: its devices cannot be read: {problem}"
        return
    yield line if node.uses else f"{line}: no GPU"
    for at, use in enumerate(node.uses, start=1):
        is_last = at == len(node.uses)
        yield ("└── " if is_last else "├── ") + device_line(use.device, reason=use.reason)
        if not use.is_measured:
            continue
        count = tenant_counts(use.holders)
        facts = fact_lines(use.device, training=count.training, inference=count.inference, others=count.unspecified)
        margin = "    " if is_last else "│   "
        yield from (f"{margin}{'└──' if fact is facts[-1] else '├──'} {fact}" for fact in facts)
