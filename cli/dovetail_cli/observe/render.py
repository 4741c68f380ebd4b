"""A look at a cluster in each of the output formats."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from dovetail.answers.observe import NodeMap, Observation, ResourceSum, WaitingPod
from dovetail.formats.durations import human
from dovetail_cli.ui import output

SHOWN: Final = 20
CSV_COLUMNS: Final = (
    "namespace", "name", "owner", "scheduler", "request", "created", "waitsSeconds", "reason", "message",
)  # fmt: skip
_MAP: Final = ("NODE", "BY", "RESOURCE", "MODEL", "DEVICES", "PROMISED", "FREE", "HOLDERS", "STATE")
_HOLDERS: Final = 3


def print_unread(found: Observation) -> None:
    """Say on standard error what may not be read, and what is missing for it."""
    for each in found.unread:
        what = f"{each.resource}.{each.group}" if each.group else each.resource
        print(f"dovetail: you may not {each.verb} {what} of the cluster; missing: {each.missing}", file=sys.stderr)


def render(found: Observation, *, form: str, everything: bool) -> str:
    """The look in one of the formats; `everything` lifts the limit on rows in the text."""
    match form:
        case "table":
            return text(found, most=None if everything else SHOWN)
        case "csv":
            return output.as_csv([msgspec.to_builtins(pod) for pod in found.pods], columns=CSV_COLUMNS)
        case _:
            # JSON has no numbers as keys.
            return output.document(msgspec.to_builtins(found, str_keys=True), form=form)


def text(found: Observation, *, most: int | None) -> str:
    """The text for people: sums, what waits and why, the map, and what is lost."""
    parts = [
        *("\n".join(_sentences(found)),),
        *_waiting(found.pods, most=most),
        *_section("Waiting in Kueue", lines=_workloads(found)),
        *_section("Not created: a ResourceQuota refuses it", lines=_refused(found)),
        *_section("ResourceQuotas that are full", lines=_full(found)),
        *_map(found.nodes, most=most),
        *_section("Room on single nodes", lines=_fragments(found)),
        *_section("Free, and of no use now", lines=_stranded(found.nodes)),
        *_section("Held and idle", lines=_idle(found)),
    ]
    return "\n\n".join(part for part in parts if part)


def _sentences(found: Observation) -> Iterator[str]:
    if not found.resources:
        yield "No node of this cluster has GPUs that a device plugin advertises, and no pod asks for any."
    for each in found.resources:
        yield _sum(each)
    waiting = len(found.pods)
    yield "No pod waits for GPUs." if not waiting else f"{_pods(waiting)} {_wait(waiting)} for GPUs."
    yield from (f"{note}." for note in found.notes)


def _sum(each: ResourceSum) -> str:
    if each.free is None or each.promised is None:
        return f"{each.resource}: {each.devices} on {_nodes(each.nodes)}; what is free is not known."
    stranded = f", {each.stranded:g} of them of no use now" if each.stranded else ""
    asked = f"; waiting pods ask for {each.asked:g}" if each.asked else ""
    return (
        f"{each.resource}: {each.promised:g} of {each.devices} on {_nodes(each.nodes)} are promised, "
        f"{each.free:g} are free{stranded}{asked}."
    )


def _waiting(pods: Sequence[WaitingPod], *, most: int | None) -> Iterator[str]:
    groups = list(_groups(pods))
    for group in groups[:most]:
        yield "\n".join(_pod(group))
    if most is not None and len(groups) > most:
        yield f"… and {len(groups) - most} more: --all shows them, -o json has everything"


def _groups(pods: Iterable[WaitingPod]) -> Iterator[list[WaitingPod]]:
    """Equal pods of one controller that wait for the same, together; in the order of the oldest."""
    found: dict[tuple[str, ...], list[WaitingPod]] = {}
    for pod in pods:
        key = (pod.namespace, pod.owner or pod.name, pod.request, pod.reason, pod.message)
        found.setdefault(key, []).append(pod)
    yield from found.values()


def _pod(group: Sequence[WaitingPod]) -> Iterator[str]:
    pod = group[0]
    owner = f" ({pod.owner})" if pod.owner else ""
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    head = f"{pod.namespace}/{pod.name}{more}{owner} {_wait(len(group))} for {pod.request}"
    yield output.bold(f"{head}, {human(pod.waits_seconds)} so far, scheduler {pod.scheduler}")
    yield f"  {pod.reason}: {pod.message}."
    for cause in pod.causes:
        named = ", ".join(cause.first) + (", …" if cause.nodes > len(cause.first) else "")
        yield f"  - {_nodes(cause.nodes)}: {cause.text} ({named})"
    for change in pod.changes:
        yield f"  It would start with {change}."
    if pod.scheduler_says:
        yield f"  Its scheduler says: {pod.scheduler_says}"


def _workloads(found: Observation) -> Iterator[str]:
    for each in found.workloads:
        whose, since = each.owner or each.name, human(each.waits_seconds)
        yield f"{each.namespace}/{whose} in queue {each.queue}, {since}: {each.request}; {each.message}"


def _refused(found: Observation) -> Iterator[str]:
    for each in found.refused:
        yield f"{each.namespace}/{each.owner}, last at {each.last}: {each.message}"


def _full(found: Observation) -> Iterator[str]:
    for each in found.quotas:
        if each.full:
            yield f"{each.namespace}/{each.name}: {each.used} of {each.hard} {each.resource} are used"


def _map(nodes: Sequence[NodeMap], *, most: int | None) -> Iterator[str]:
    if not nodes:
        return
    shown = nodes[:most]
    rest = len(nodes) - len(shown)
    more = f"\n… and {rest} more: --all shows them, -o json has everything" if rest else ""
    yield output.table([list(_MAP), *map(_row, shown)], width=output.terminal_width()) + more


def _row(node: NodeMap) -> list[str]:
    return [
        node.node, node.system, node.resource, node.model or "-", str(node.devices), _number(node.promised),
        _number(node.free), _holders(node), node.closed.removeprefix("is ") or "open",
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _holders(node: NodeMap) -> str:
    largest = sorted(node.holders, key=lambda each: -each.devices)
    named = [f"{each.namespace}/{each.name} ({each.devices:g})" for each in largest[:_HOLDERS]]
    rest = len(largest) - len(named)
    return ", ".join([*named, *([f"{rest} more"] if rest else [])]) or "-"


def _fragments(found: Observation) -> Iterator[str]:
    for each in found.fragments:
        rooms = ", ".join(f"{pods} of {size}" for size, pods in each.pods.items())
        yield f"{each.whole} whole {each.resource} are free: room now for pods of one size, {rooms}"


def _stranded(nodes: Iterable[NodeMap]) -> Iterator[str]:
    for node in nodes:
        if node.stranded:
            yield f"{_number(node.free)} {node.resource} on {node.node}: {node.stranded}"


def _idle(found: Observation) -> Iterator[str]:
    for each in found.idle:
        held = ", ".join(each.pods)
        yield f"{each.device} ({each.model}), utilization {each.utilization:.0%}, held by {held}"


def _section(title: str, *, lines: Iterable[str]) -> Iterator[str]:
    said = [f"  {line}" for line in lines]
    if said:
        yield "\n".join([f"{title}:", *said])


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
