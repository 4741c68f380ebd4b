"""The verdicts of a scheduling cycle on waiting jobs. Values and messages only."""

from dataclasses import dataclass

import msgspec

from dovetail.api.gpujob import Provisioning, QueuePlace, Reason
from dovetail.engine.filter.messages import gpus
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.claims import Ask, Claim
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.dependencies import with_number
from dovetail.queue.model.candidates import Candidate


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

    `provisioning` is the request for new nodes, with the reason Provisioning. `reshaping` is the part of the message
    about GPUs that are partitioned again for the job.
    """

    # A cycle makes one for each of thousands of jobs: a struct takes a fifth of the time of a frozen dataclass.

    key: str
    reason: Reason
    message: str
    queue: QueuePlace | None = None
    kept: Kept | None = None
    provisioning: Provisioning | None = None
    reshaping: str = ""


Verdict = Admitted | Waits


def short_of(job: Candidate, *, shortage: Shortage) -> Waits:
    """The verdict on a job that does not fit."""
    return Waits(key=job.key, reason=shortage.reason, message=shortage.message)


def kept_back(job: Candidate, *, by: Reservation, shortage: Shortage) -> Waits:
    """The verdict on a job that fits only on devices that a reservation keeps."""
    if by.words:
        return Waits(key=job.key, reason="Reserved", message=f"{shortage.message}; {by.words}")
    namespace, _, name = by.job.name.partition("/")
    # Tenants must not see the names of other namespaces.
    is_near = job.name.partition("/")[0] == namespace
    who = with_number(name, number=by.job.number) if is_near else "a job of another namespace"
    above = by.job.priority > job.priority
    before = "which has used less recently" if by.job.share < job.share else "which is older"
    kept = "is" if by.devices == 1 else "are"
    rank = f"of priority {by.job.priority}" if above else before
    return Waits(
        key=job.key,
        reason="Priority" if above else "Reserved",
        message=f"{shortage.message}; {gpus(by.devices)} {kept} kept for {who}, {rank}",
    )
