"""Events on jobs, GPUNodes and other objects: their sentences."""

from typing import Final

from dovetail.api.reasons.clause import clause
from dovetail.api.reasons.codes import (
    BAD_CARD,
    IDLE,
    LIVENESS_PROBE,
    MEMORY_OVER_PROMISE,
    NOT_ASKED_OF_DOVETAIL,
    NOT_COUNTED,
    NOT_QUEUED,
    NOTIFICATION_FAILED,
    NOTIFICATIONS_LIMITED,
    PREEMPTING,
    PROVISIONING,
    RESHAPE_FAILED,
    RESHAPED,
    RESHAPING,
    SERVICE_MISSING,
    START_ESTIMATED,
    WORKER_REPLACED,
)

ENDS_AT: Final = clause("EndsAt", "{why}: its workers are ended at {time}", reason=PREEMPTING)
STARTS_ABOUT: Final = clause(
    "StartsAbout",
    "Is expected to start at {time}, between {earliest} and {latest}",
    reason=START_ESTIMATED,
)
MOVED: Final = clause(
    "WorkersMoved", "Replaced on other nodes, the other workers go on: {moves}", reason=WORKER_REPLACED
)
BAD_CARDS: Final = clause("BadCards", "{gpus}", reason=BAD_CARD)
OVERUSED: Final = clause("Overused", "{sentence}", reason=MEMORY_OVER_PROMISE)
IS_IDLE: Final = clause("IsIdle", "No GPU work since {since}", reason=IDLE)
WILL_BE_HELD: Final = clause("WillBeHeld", ": the job is held if that goes on for {seconds} s")
WILL_BE_ENDED: Final = clause("WillBeEnded", ": the job is ended if that goes on for {seconds} s")
IS_HELD: Final = clause("IsHeld", ": the job is held (gjob release lets it go on)")
IS_ENDED: Final = clause("IsEnded", ": the job is ended")
BUDGET_KEEPS: Final = clause(
    "BudgetKeeps", ": the job goes on for now, because PodDisruptionBudget {budget} lets no more of its pods end"
)
FREEZES: Final = clause(
    "ProbeFreezes",
    "Container {containers} has a liveness probe, but where tenants take turns the whole pod is frozen while it waits: "
    "kubelet may end it. Remove the probe, or ask for whole GPUs or shares",
    reason=LIVENESS_PROBE,
)
NOT_EVERY_ADDRESS: Final = clause(
    "NotEveryAddress", "Not every address was notified: {problem}", reason=NOTIFICATION_FAILED
)
NOT_SENT: Final = clause("NotSent", "The notification of {event} was not sent: {problem}", reason=NOTIFICATION_FAILED)
DROPPED: Final = clause(
    "NotificationsDropped",
    "This and further notifications of namespace {namespace} are dropped: it has sent {most} within an hour, as many "
    "as it may (notify_per_hour)",
    reason=NOTIFICATIONS_LIMITED,
)
RESHAPING_BEGINS: Final = clause("ReshapingBegins", "Reshaping {gpu} into {profiles}", reason=RESHAPING)
RESHAPING_ENDS: Final = clause("ReshapingEnds", "Reshaped {gpu} into {profiles}", reason=RESHAPED)
NOT_RESHAPED: Final = clause(
    "NotReshaped", "{gpu} could not be reshaped into {profiles}: {problem}", reason=RESHAPE_FAILED
)
NODES_REFUSED: Final = clause("NodesRefused", "{why}", reason=PROVISIONING)
OTHER_QUOTA: Final = clause(
    "OtherQuotaInPlace",
    "It does not limit GPUs of Dovetail: the ResourceQuota {name}, which Dovetail did not make, has the name of the "
    "one that would",
    reason=NOT_COUNTED,
)
NO_SERVICE: Final = clause("NoService", "Its workers cannot find each other: {why}", reason=SERVICE_MISSING)
GUEST_PROBLEM: Final = clause("GuestProblem", "{problem}", reason=NOT_QUEUED)
OTHER_SCHEDULER: Final = clause("OtherScheduler", "{remedy}", reason=NOT_ASKED_OF_DOVETAIL)
PHASE: Final = clause("PhaseAlone", "{phase}")
ON: Final = clause("OnNodesListed", " on {nodes}")
AFTER: Final = clause("AfterTime", " after {duration}")
