"""When jobs started, moved, were preempted and ended, from their status. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dovetail.answers.use.series import MarkKind, MarkRow
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What happened to the job of this UID, at a second since 1970; the nodes are those of the run that it concerns."""

    uid: str
    at: int
    row: MarkRow

    @property
    def key(self) -> tuple[str, str, int]:
        """What no other mark has.

        A status has the latest attempts only: a start is a move no longer once the run before it has left.
        """
        return self.uid, "Started" if self.row.kind == "Moved" else self.row.kind, self.at


def marks_of(job: GPUJob) -> Iterator[Mark]:
    """All that the job's status says of its runs: the same marks whenever it is asked."""
    status, before = job.status, tuple[str, ...]()
    for attempt in status.attempts:
        nodes = tuple(attempt.nodes)
        if attempt.start_time:
            yield _mark(job, kind=_start_kind(before, nodes=nodes), at=attempt.start_time, nodes=nodes)
            before = nodes or before
    nodes = tuple(status.nodes)
    if status.start_time:
        yield _mark(job, kind=_start_kind(before, nodes=nodes), at=status.start_time, nodes=nodes)
    if status.preemption is not None and status.preemption.last_time:
        yield _mark(job, kind="Preempted", at=status.preemption.last_time, nodes=before or nodes)
    if status.completion_time:
        yield _mark(job, kind="Ended", at=status.completion_time, nodes=nodes)


def latest(marks: Iterable[Mark], *, most: int) -> list[Mark]:
    """At most so many, in the order of time: the latest of each namespace, of all namespaces as many."""
    turns: Counter[str] = Counter()
    ranked = []
    for mark in sorted(marks, key=lambda mark: mark.at, reverse=True):
        turns[mark.row.namespace] += 1
        ranked.append((turns[mark.row.namespace], mark))
    kept = sorted(ranked, key=lambda each: each[0])[:most]
    return sorted((mark for _, mark in kept), key=lambda mark: mark.at)


def _start_kind(before: tuple[str, ...], *, nodes: tuple[str, ...]) -> MarkKind:
    return "Moved" if before and nodes and set(before) != set(nodes) else "Started"


def _mark(job: GPUJob, *, kind: MarkKind, at: str, nodes: tuple[str, ...]) -> Mark:
    meta = job.metadata
    row = MarkRow(
        at=at, kind=kind, namespace=meta.namespace, job=meta.name, number=job.status.number, nodes=list(nodes)
    )
    return Mark(uid=meta.uid, at=int(moment(at).timestamp()), row=row)
