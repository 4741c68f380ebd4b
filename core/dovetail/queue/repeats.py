"""Which verdicts a cycle does not make again: those of jobs of one kind, and those that jobs have already.

A number in a message changes with every pod. Of thousands of waiting jobs, only the first ones get a new message for
the same reason, so the others need no new verdict while their reason stays.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import msgspec

from dovetail.api.gpujob import QueuePlace, Reason
from dovetail.queue.model.candidates import Candidate, InOrder
from dovetail.queue.model.gate import APART, Gate, Open
from dovetail.queue.verdicts import Verdict, Waits

RENEWED_JOBS: Final = 100
# The reason of a job that no free room can ever serve. It delays no other job, so it has no position.
_NEVER: Final[Reason] = "ExceedsCapacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The verdicts of the cycle before, by the job's key, and the reasons for which all jobs get new ones."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    renewed_reasons: Container[Reason] = ()

    def stays(self, verdict: Waits, *, rank: int) -> bool:
        """Whether the job keeps its verdict of the cycle before. `rank` is its place in the order, from 0."""
        before = self.verdicts.get(verdict.key)
        kept = before is not None and is_kept(before, verdict=verdict, rank=rank)
        return kept and verdict.reason not in self.renewed_reasons


NONE_BEFORE: Final = Previous()


def is_kept(before: Verdict, *, verdict: Waits, rank: int) -> bool:
    """Whether the previous verdict remains: same reason, and the job is not among the first.

    `rank` is the position in the queue, from 0.
    """
    return (
        rank >= RENEWED_JOBS
        and isinstance(before, Waits)
        and before.reason == verdict.reason
        and before.provisioning == verdict.provisioning
    )


class Repeats:
    """The verdicts on waiting jobs by kind, until something in the cycle changes.

    `alone` has the keys of jobs that are judged by themselves; with `all_alone`, all are.
    """

    def __init__(self, *, gate: Gate, alone: Collection[str] = (), all_alone: bool = False) -> None:
        self.known: dict[object, Waits] = {}
        self.changes = 0
        self._gate = gate
        self._alone = alone
        self._all_alone = all_alone
        self._has_plain_kinds = isinstance(gate, Open) and not alone and not all_alone

    def changed(self) -> None:
        """Drop the verdicts: the cycle has counted, committed or reserved something."""
        self.changes += 1
        self.known.clear()

    def judged(self, job: Candidate, *, by: Callable[[Candidate], Verdict]) -> Verdict:
        """The verdict on the job, made by `by` unless one on a job of its kind is known."""
        kind = self._kind_of(job)
        like = self.known.get(kind)
        if like is not None:
            return msgspec.structs.replace(like, key=job.key)
        changes, verdict = self.changes, by(job)
        # What is kept is kept for this job alone.
        if kind is not None and changes == self.changes and isinstance(verdict, Waits) and verdict.kept is None:
            self.known[kind] = verdict
        return verdict

    def kinds(self, jobs: Sequence[Candidate]) -> Iterable[object]:
        """The kind of each job; None for one that is judged by itself."""
        # Each cycle asks for the kinds of thousands of jobs, mostly without limits.
        return jobs.kinds if self._has_plain_kinds and isinstance(jobs, InOrder) else map(self._kind_of, jobs)

    def _kind_of(self, job: Candidate) -> object:
        if self._all_alone:
            return None
        terms = self._gate.terms_of(job)
        if terms is APART or job.key in self._alone:
            return None
        return job.kind if terms is None else (job.kind, id(terms))


def new_verdicts(
    jobs: Sequence[Candidate],
    *,
    judge: Callable[[Candidate], Verdict],
    repeats: Repeats | None,
    previous: Previous,
) -> Iterator[Verdict]:
    """Yield the verdicts on `jobs`, in their order, with positions, without those that jobs keep.

    `judge` makes them. With `repeats`, a job that keeps its verdict is not judged where that of its kind is known.
    """
    known, kinds = ({}, repeat(None)) if repeats is None else (repeats.known, repeats.kinds(jobs))
    before_of, renewed_reasons, position = previous.verdicts.get, previous.renewed_reasons, 0
    for rank, (job, kind) in enumerate(zip(jobs, kinds, strict=False)):
        if rank >= RENEWED_JOBS and (like := known.get(kind)) is not None:
            # As `stays` says, in few steps: these are nearly all jobs of a long queue, in each cycle.
            before = before_of(job.key)
            keeps = type(before) is Waits and before.reason == like.reason and before.provisioning is None
            if keeps and like.reason not in renewed_reasons:
                position += like.reason != _NEVER
                continue
        verdict = judge(job)
        if isinstance(verdict, Waits):
            has_position = verdict.reason != _NEVER
            position += has_position
            if previous.stays(verdict, rank=rank):
                continue
            if has_position:
                verdict = msgspec.structs.replace(verdict, queue=QueuePlace(position=position))
        yield verdict
