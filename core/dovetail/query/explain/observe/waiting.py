"""Why a pod without a node waits, by the nodes' books. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from dovetail.answers.observe import WaitCause, WaitingPod, WaitReason
from dovetail.api.builtin import is_terminated
from dovetail.cluster.observed import PlacedPod
from dovetail.formats.timestamps import seconds_between
from dovetail.query.explain.observe.books import NodeBook, owner_of
from dovetail.query.explain.observe.demands import NVIDIA, Demand, demand_of
from dovetail.query.explain.observe.refusals import Kind, Refusal, offers, refusals

_DEFAULT_SCHEDULER: Final = "default-scheduler"
# Of nodes, and of changes, in one answer; the rest is counted.
_FIRST: Final = 3
# Which of several refusals of a node its cause names: what no end of another pod removes comes first.
_RANKS: Final[Sequence[Kind]] = ("TooLarge", "Excluded", "Closed", "Devices", "Host")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """The answers of the nodes that have such devices."""

    fitting: Sequence[NodeBook]
    refusing: Sequence[tuple[NodeBook, Sequence[Refusal]]]

    def only(self, *kinds: Kind, at_least: Kind | None = None) -> list[NodeBook]:
        """The nodes that refuse for these kinds of reasons alone, and for `at_least` among them."""
        found = ((book, {each.kind for each in refusing}) for book, refusing in self.refusing)
        return [book for book, why in found if why <= set(kinds) and (at_least is None or at_least in why)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """What the nodes' answers say of a pod; `short` is why none has room, None where one has or none offers any."""

    fitting: Sequence[NodeBook]
    short: tuple[WaitReason, str] | None
    causes: list[WaitCause]
    changes: list[str]


def is_waiting(pod: PlacedPod) -> bool:
    """Whether the pod waits for a node."""
    return not pod.spec.node_name and not is_terminated(pod) and pod.metadata.deletion_timestamp is None


class Judge:
    """Asks all nodes about a pod, and once about equal ones: a Job may have thousands that wait."""

    def __init__(self, books: Sequence[NodeBook]) -> None:
        self._books = books
        self._known: dict[bytes, _Verdict] = {}

    def verdict(self, pod: PlacedPod, *, demand: Demand) -> _Verdict:
        """The answers of the nodes that have such devices."""
        key = msgspec.msgpack.encode((demand, pod.spec.constraints))
        if key not in self._known:
            self._known[key] = _verdict(pod, demand=demand, books=self._books)
        return self._known[key]


def waiting_pod(pod: PlacedPod, *, demand: Demand, judge: Judge | None, everywhere: bool, now: datetime) -> WaitingPod:
    """The answer for a pod that waits; without the nodes' books, only what the pod itself says.

    Unless the books have the pods of all namespaces (`everywhere`), room on a node is not known.
    """
    verdict = None if judge is None else judge.verdict(pod, demand=demand)
    says = _scheduler_says(pod)
    reason, message = _why(pod, demand=demand, verdict=verdict, says=says)
    fitting = [] if verdict is None else verdict.fitting
    if reason in {"Room", "NotSeen"} and not everywhere:
        reason, message = "Unknown", f"Needs {demand.words}; what is free on {_named(fitting)} is not known"
        fitting = []
    meta = pod.metadata
    return WaitingPod(
        namespace=meta.namespace,
        name=meta.name,
        owner=owner_of(pod),
        scheduler=pod.spec.scheduler_name or _DEFAULT_SCHEDULER,
        request=demand.words,
        created=meta.creation_timestamp,
        waits_seconds=seconds_between(meta.creation_timestamp, end=None, now=now) or 0.0,
        reason=reason,
        message=message,
        causes=[] if verdict is None else verdict.causes,
        changes=[] if verdict is None else verdict.changes,
        fits_on=[book.name for book in fitting[:_FIRST]],
        scheduler_says=says,
    )


def _verdict(pod: PlacedPod, *, demand: Demand, books: Sequence[NodeBook]) -> _Verdict:
    asked = [book for book in books if offers(book, demand=demand)] if demand.amounts or demand.parts else []
    found = [(book, refusals(book, demand=demand, constraints=pod.spec.constraints)) for book in asked]
    answers = _Answers(
        fitting=[book for book, refusing in found if not refusing],
        refusing=[(book, refusing) for book, refusing in found if refusing],
    )
    has_none = bool(answers.refusing) and not answers.fitting
    return _Verdict(
        fitting=answers.fitting,
        short=_without_room(demand, answers=answers) if has_none else None,
        causes=_causes(answers),
        changes=_changes(answers),
    )


def _why(pod: PlacedPod, *, demand: Demand, verdict: _Verdict | None, says: str) -> tuple[WaitReason, str]:
    gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
    if gates:
        return "Gated", f"No scheduler looks at it while it has the gates {gates}"
    if demand.problem:
        return "Unreadable", f"Its request cannot be read: {demand.problem}"
    if verdict is None:
        return "Unknown", f"Needs {demand.words}; without the right to list nodes, nothing more is known"
    if verdict.fitting:
        return _with_room(pod, verdict=verdict, says=says)
    if verdict.short is None:
        return "NoNodes", f"Needs {demand.words}, and no node of the cluster has such devices"
    return verdict.short


def _with_room(pod: PlacedPod, *, verdict: _Verdict, says: str) -> tuple[WaitReason, str]:
    has = f"{_named(verdict.fitting)} {_has(verdict.fitting)} room for it by devices, CPU, memory, labels and taints"
    if says:
        return "Room", f"{has}; {_others_rules(pod)}"
    name = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
    return "NotSeen", f"{has}, and no scheduler has reported on it: does one run that is called {name}?"


def _others_rules(pod: PlacedPod) -> str:
    """What the books do not say and a scheduler may refuse a pod for."""
    rules = ["quotas and gangs of its scheduler", "volumes"]
    if pod.spec.affinity.get("podAffinity") or pod.spec.affinity.get("podAntiAffinity"):
        rules.append("its pod affinity")
    if pod.spec.topology_spread_constraints:
        rules.append("its topology spread")
    return f"what keeps it waiting is beyond these, such as {', '.join(rules[:-1])} or {rules[-1]}"


def _without_room(demand: Demand, *, answers: _Answers) -> tuple[WaitReason, str]:
    needs = f"Needs {demand.words}"
    short = answers.only("Devices", "Host", at_least="Devices")
    if short:
        return _short(demand, short=short)
    if tight := answers.only("Host"):
        return "Host", f"{needs}: {_named(tight)} {_has(tight)} the devices free, but too little CPU, memory or pods"
    if closed := answers.only("Closed", "Devices", "Host"):
        take = "takes" if len(closed) == 1 else "take"
        return "NodesClosed", f"{needs}; {_named(closed)}, where it may run, {take} no pods now"
    if all(any(each.kind == "TooLarge" for each in found) for _, found in answers.refusing):
        return "TooLarge", f"{needs}, more than any node with such devices has"
    return "NotAllowed", f"{needs}; no node with such devices that is large enough admits it"


def _short(demand: Demand, *, short: Sequence[NodeBook]) -> tuple[WaitReason, str]:
    """The words for a pod that lacks devices: how many are free, and where most."""
    if demand.parts:
        return "Devices", f"Needs {demand.words}; no device of {_nodes(len(short))} has that much left"
    resource, asked = max(demand.amounts.items(), key=lambda each: each[1])
    free = {book.name: _free(book, resource=resource) for book in short}
    most, total = max(free, key=lambda name: free[name]), sum(free.values())
    if total >= asked:
        found = f"{total} are free on {_nodes(len(short))}, and {free[most]} at most on one ({most})"
        return "Scattered", f"Needs {demand.words} on one node: {found}"
    where = f"{free[most]} free at most, on {most}" if free[most] else "none is free"
    return "Devices", f"Needs {demand.words} on one node: {where}"


def _free(book: NodeBook, *, resource: str) -> int:
    if resource == NVIDIA and book.hamis:
        return book.whole_free(resource)
    return max(0, book.amounts[resource].free)


def _causes(answers: _Answers) -> list[WaitCause]:
    """The refusals by cause, the most frequent first: one for each node."""
    causes: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], list[str]] = {}
    for book, found in answers.refusing:
        first = min(found, key=lambda each: _RANKS.index(each.kind))
        key = (first.reason, first.text)
        causes[key] += 1
        where.setdefault(key, []).append(book.name)
    ordered = sorted(causes.items(), key=lambda each: (-each[1], each[0]))
    return [
        WaitCause(reason=reason, text=text, nodes=count, first=where[reason, text][:_FIRST])
        for (reason, text), count in ordered
    ]


def _changes(answers: _Answers) -> list[str]:
    """What alone would give the pod a node, for each reason on the node that lacks the least."""
    alone = [found[0] for _, found in answers.refusing if len(found) == 1 and found[0].change]
    least: dict[str, Refusal] = {}
    for each in alone:
        if each.reason not in least or each.lacks < least[each.reason].lacks:
            least[each.reason] = each
    return [each.change for each in least.values()]


def _scheduler_says(pod: PlacedPod) -> str:
    said = next(
        (each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False"), None
    )
    return "" if said is None else said.message or said.reason


def _named(books: Sequence[NodeBook]) -> str:
    first = ", ".join(book.name for book in books[:_FIRST])
    return first + (f" and {len(books) - _FIRST} more" if len(books) > _FIRST else "")


def _has(books: Sequence[NodeBook]) -> str:
    return "has" if len(books) == 1 else "have"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def demands_of(pods: Sequence[PlacedPod]) -> list[tuple[PlacedPod, Demand]]:
    """The waiting pods that ask for GPUs, the oldest first."""
    waiting = sorted(filter(is_waiting, pods), key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))
    found = ((pod, demand_of(pod)) for pod in waiting)
    return [(pod, demand) for pod, demand in found if demand is not None]
