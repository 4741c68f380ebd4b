"""What a look at the queue says of each job that waits. Values and words only."""

from dataclasses import dataclass

import msgspec

from dovetail.api.gpujob import QueuePlace, Reason
from dovetail.engine.filter.messages import gpus
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.claims import Ask, Claim
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The job may start; `claims` are what its workers would hold, in the way of `ask`: its plan.

    `limit` names what limit leaves it no more workers, where it may have fewer than it asks for.
    """

    key: str
    claims: tuple[Claim, ...] = ()
    ask: Ask | None = None
    limit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the first job that does not fit has reserved: where it is to start, and what of that is kept free now."""

    at_seconds: float
    claims: tuple[Claim, ...]
    now: tuple[Claim, ...]


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The job waits, and why: one word of the closed set and one sentence with numbers; and where in the queue."""

    # A look makes one for each of thousands of jobs: a struct takes a fifth of the time of a frozen dataclass.

    key: str
    reason: Reason
    message: str
    queue: QueuePlace | None = None
    kept: Kept | None = None


Verdict = Admitted | Waits


def short_of(job: Candidate, shortage: Shortage) -> Waits:
    """The words for a job that does not fit."""
    return Waits(key=job.key, reason=shortage.reason, message=shortage.message)


def kept_back(job: Candidate, *, by: Reservation, shortage: Shortage) -> Waits:
    """The words for a job that fits, but only on devices that are reserved for an earlier job or a coming window."""
    if by.words:
        return Waits(key=job.key, reason="Reserved", message=f"{shortage.message}; {by.words}")
    namespace, _, name = by.job.name.partition("/")
    # A tenant does not see names of other namespaces.
    who = name if job.name.partition("/")[0] == namespace else "a job of another namespace"
    above = by.job.priority > job.priority
    before = "which has used less recently" if by.job.share < job.share else "which is older"
    kept = "is" if by.devices == 1 else "are"
    rank = f"of priority {by.job.priority}" if above else before
    return Waits(
        key=job.key,
        reason="Priority" if above else "Reserved",
        message=f"{shortage.message}; {gpus(by.devices)} {kept} kept for {who}, {rank}",
    )
