"""The verdicts of a scheduling cycle on waiting jobs. Values and messages only."""

from dataclasses import dataclass

import msgspec

from dovetail.api.gpujob import Provisioning, QueuePlace, Reason
from dovetail.api.meta import MessageDetail
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.capacity import SEMICOLON
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.claims import Ask, Claim
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate, Room


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
