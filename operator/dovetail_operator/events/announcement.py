"""Which status change of a job becomes a Kubernetes event. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.builtin import Severity
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons.capacity import COLON
from dovetail.api.reasons.clause import NOTHING, Sentence, sentence_from
from dovetail.api.reasons.events import AFTER, ENDS_AT, MOVED, ON, PHASE, STARTS_ABOUT
from dovetail.api.reasons.queue import basis_of
from dovetail.api.resources import GPUJOBS, Resource
from dovetail.jobs.plan import nodes_by_worker

_PASSING: Final = frozenset({"Evaluating", "ContainerCreating"})
# The most moves that an event names.
_MOVES: Final = 8
_WARNINGS: Final = frozenset({"Invalid", "ExceedsCapacity", "Failed", "TimedOut", "Quota", "DependencyFailed"})
# The status says why a new job waits for its turn. Of many jobs, an event of that takes an eighth of the CPU.
_PLAIN_WAITS: Final = frozenset({
    "BeginTime", "Dependency", "Priority", "Resources", "Fragmentation", "MemoryGuard", "Reserved",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An event about the GPUJob, or another object `of` this kind, with the metadata `about`.

    `adds` says that it comes with another event, which it does not replace.
    """

    about: ObjectMeta
    severity: Severity
    why: Sentence
    of: Resource = GPUJOBS
    adds: bool = False

    @property
    def reason(self) -> str:
        """The event's reason."""
        return self.why.reason

    @property
    def message(self) -> str:
        """The event's message."""
        return self.why.message

    def on(self, resource: Resource) -> "Announcement":
        """The same about an object of another kind."""
        return replace(self, of=resource)


def announcement(
    job: GPUJob, *, status: GPUJobStatus, shows_status: bool = True, of_many: bool = False
) -> Announcement | None:
    """The event for a status written on `job`: another phase, or another reason to wait.

    Else None. Two changes need no event where the object `shows_status`: the start of a job without an earlier event,
    of which kube-scheduler's event on the pod and the Job controller's on the batch Job tell; and that a new job waits
    for its turn, if it is one `of_many` that come at once.
    """
    before = job.status
    if (leaving := _leaving(before, status=status)) is not None:
        return Announcement(about=job.metadata, severity="Warning", why=leaving)
    if (moved := _replaced(before, status=status)) is not None:
        return Announcement(about=job.metadata, severity="Warning", why=moved)
    if before.phase == status.phase:
        waits = status.phase in {"Queued", "Starting"} and status.reason not in _PASSING
        if not waits or before.reason == status.reason:
            return None
    elif shows_status and (
        _starts_at_once(before, status=status) or (of_many and _waits_at_once(before, status=status))
    ):
        return None
    reason = status.reason if status.phase == "Queued" else status.phase
    return Announcement(
        about=job.metadata,
        severity="Warning" if {status.reason, status.phase} & _WARNINGS else "Normal",
        why=(sentence_from(status) if status.message else _plain(status)).with_reason(reason or "Queued"),
    )


def _starts_at_once(before: GPUJobStatus, *, status: GPUJobStatus) -> bool:
    """Whether a job starts or runs of which no event has said that anything keeps it.

    One that runs in another way than it asked for, such as on the CPU, says so in an event.
    """
    return (
        (status.phase == "Starting" or (status.phase == "Running" and not status.message))
        and before.phase in {None, "Queued", "Starting"}
        and {before.reason, status.reason} <= _PASSING | {""}
    )


def _waits_at_once(before: GPUJobStatus, *, status: GPUJobStatus) -> bool:
    """Whether this is the first reason of a new job, and one that passes by itself."""
    return before.phase is None and status.phase == "Queued" and status.reason in _PLAIN_WAITS


def first_estimate(job: GPUJob, *, status: GPUJobStatus) -> Announcement | None:
    """The event for the first estimate of a waiting job's start; None for a later one, and without one.

    Only objects that show no status of the queue need it: the pod of a replica, for example.
    """
    before, now = job.status.queue, status.queue
    if now is None or now.estimated_start is None or (before is not None and before.estimated_start is not None):
        return None
    why = STARTS_ABOUT(
        time=now.estimated_start,
        earliest=now.estimated_start_earliest or now.estimated_start,
        latest=now.estimated_start_latest or now.estimated_start,
    )
    # One write of the status may bring both the reason and the estimate.
    return Announcement(about=job.metadata, severity="Normal", why=why + COLON() + basis_of(now), adds=True)


def _leaving(before: GPUJobStatus, *, status: GPUJobStatus) -> Sentence | None:
    """What is said of a new preemption notice; None without one, and for a job that ends without a grace period."""
    made, known = status.preemption, before.preemption
    if status.phase == "Preempted" or made is None or made.at is None or (known is not None and known.at == made.at):
        return None
    return ENDS_AT(why=made.message, time=made.at)


def _replaced(before: GPUJobStatus, *, status: GPUJobStatus) -> Sentence | None:
    """What is said of workers that have lost their node and get another one; None if there are none."""
    known, plan = before.placement, status.placement
    if known is None or plan is None or plan.generation != known.generation or plan.replaced <= known.replaced:
        return None
    pairs = enumerate(zip(nodes_by_worker(known), nodes_by_worker(plan), strict=True))
    moves = [f"worker {worker} from {old} to {new}" for worker, (old, new) in pairs if old != new]
    return MOVED(moves=", ".join(moves[:_MOVES]))


def _plain(status: GPUJobStatus) -> Sentence:
    where = ON(nodes=status.node_list) if status.node_list else NOTHING
    after = AFTER(duration=status.elapsed) if status.completion_time and status.elapsed else NOTHING
    return PHASE(phase=status.phase or "") + where + after
