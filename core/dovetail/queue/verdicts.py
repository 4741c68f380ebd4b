"""The verdicts of a scheduling cycle on waiting jobs: values, messages, and which verdicts a cycle does not make again.

A number in a message changes with every pod. Of thousands of waiting jobs, only the first ones get a new message for
the same reason, so the others need no new verdict while their reason stays.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import msgspec

from dovetail.api.gpujob import Provisioning, QueuePlace, Reason
from dovetail.api.meta import MessageDetail
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.capacity import SEMICOLON
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.claims import Ask, Claim
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate, InOrder, Room
from dovetail.queue.model.gate import APART, Gate, Open

RENEWED_JOBS: Final = 100
# The reason of a job that no free room can ever serve. It delays no other job, so it has no position.
_NEVER: Final[Reason] = "ExceedsCapacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The job may start.

    `claims` are its plan: what its workers are to hold, one claim a worker, for the request `ask`.

    `limit` names the limit that leaves an elastic job fewer workers than it requests; empty otherwise.

    `limit_seconds` is its time limit if that alone let it start on nodes that a reservation keeps; None otherwise.

    `on_cpu` says why all its workers run on the CPU instead of the GPUs that they request; empty otherwise.
    """

    key: str
    claims: tuple[Claim, ...] = ()
    ask: Ask | None = None
    limit: str = ""
    limit_seconds: int | None = None
    on_cpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The reservation of the first job that does not fit.

    `at_seconds` from now until its start, the `claims` it is to hold then, and what of them is kept free `now`.
    """

    at_seconds: float
    claims: tuple[Claim, ...]
    now: tuple[Claim, ...]


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The job waits: a reason of the closed set, a sentence with numbers, its queue place.

    `details` are the clauses of the sentence. `provisioning` is the request for new nodes, with the reason
    Provisioning. `reshaping` is the part of the message
    about GPUs that are partitioned again for the job.
    """

    # A cycle makes one for each of thousands of jobs: a struct takes a fifth of the time of a frozen dataclass.

    key: str
    reason: Reason
    message: str
    details: tuple[MessageDetail, ...] = ()
    queue: QueuePlace | None = None
    kept: Kept | None = None
    provisioning: Provisioning | None = None
    reshaping: str = ""


Verdict = Admitted | Waits


def waits_because(job: Candidate, *, why: Sentence) -> Waits:
    """The verdict on a job that waits for this reason."""
    return Waits(key=job.key, reason=why.wait_reason, message=why.message, details=why.clauses)


def why_of(verdict: Waits) -> Sentence:
    """The sentence of a verdict."""
    return Sentence(reason=verdict.reason, message=verdict.message, clauses=verdict.details)


def with_clause(verdict: Waits, *, clause: Sentence) -> Waits:
    """The verdict with what its sentence goes on with; a clause that states a reason changes that too."""
    if not clause.message:
        return verdict
    return msgspec.structs.replace(
        verdict,
        reason=clause.wait_reason if clause.reason else verdict.reason,
        message=verdict.message + clause.message,
        details=(*verdict.details, *clause.clauses),
    )


def kept_back(job: Candidate, *, by: Reservation, shortage: Shortage) -> Waits:
    """The verdict on a job that fits only on devices that a reservation keeps."""
    why = shortage + SEMICOLON() + by.words_for(job)
    if by.words is not None:
        return waits_because(job, why=why)
    if by.job.priority > job.priority:
        return waits_because(job, why=why + says.OF_PRIORITY(priority=by.job.priority))
    return waits_because(job, why=why + (says.USED_LESS() if by.job.share < job.share else says.IS_OLDER()))


def in_short(found: object) -> str:
    """What a step of a cycle found, for a line of the log."""
    match found:
        case Room(claims=claims) | Admitted(claims=claims):
            return ", ".join(sorted({claim.node for claim in claims})) or "room"
        case Waits(reason=reason, message=message) | Sentence(reason=reason, message=message):
            return f"{reason}: {message}" if reason else message
        case int():
            return "within its guarantee"
        case _:
            return "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The verdicts of the cycle before, by the job's key, and the reasons for which all jobs get new ones."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    renewed_reasons: Container[Reason] = ()


NONE_BEFORE: Final = Previous()


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

    `judge` makes them. With `repeats`, a job is not judged where the verdict on its kind is known.
    """
    known, kinds = ({}, repeat(None)) if repeats is None else (repeats.known, repeats.kinds(jobs))
    before_of, renewed_reasons, position = previous.verdicts.get, previous.renewed_reasons, 0
    for rank, (job, kind) in enumerate(zip(jobs, kinds, strict=False)):
        # Few steps for each: a long queue has thousands of jobs of known kinds, in each cycle.
        like = known.get(kind)
        verdict = judge(job) if like is None else like
        if not isinstance(verdict, Waits):
            yield verdict
            continue
        reason = verdict.reason
        has_position = reason != _NEVER
        position += has_position
        if rank >= RENEWED_JOBS and reason not in renewed_reasons:
            before = before_of(job.key)
            if type(before) is Waits and before.reason == reason and before.provisioning == verdict.provisioning:
                continue
        place = QueuePlace(position=position) if has_position else None
        yield msgspec.structs.replace(verdict, key=job.key, queue=place)
