"""The reasons of jobs and of their conditions: who sets each, and what resolves it."""

from dataclasses import dataclass
from typing import Final, Literal

# What a reason goes away by: time alone, room that comes free, the job's user, or an administrator; nothing where all
# is well.
Resolver = Literal["time", "capacity", "user", "administrator", "nothing"]
Setter = Literal["queue", "operator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason: its code, who sets it, what resolves it, and what it means."""

    code: str
    set_by: Setter
    resolved_by: Resolver
    means: str


_all: list[Reason] = []


def _reason(code: str, *, set_by: Setter, resolved_by: Resolver, means: str) -> Reason:
    made = Reason(code=code, set_by=set_by, resolved_by=resolved_by, means=means)
    _all.append(made)
    return made


RESOURCES: Final = _reason(
    "Resources", set_by="queue", resolved_by="capacity", means="Other jobs use the GPUs, CPU or memory that it needs."
)
FRAGMENTATION: Final = _reason(
    "Fragmentation",
    set_by="queue",
    resolved_by="capacity",
    means="Enough is free in total, but not together on one node or in one domain.",
)
MEMORY_GUARD: Final = _reason(
    "MemoryGuard", set_by="queue", resolved_by="capacity", means="Only device memory is missing."
)
NODE_UNHEALTHY: Final = _reason(
    "NodeUnhealthy",
    set_by="queue",
    resolved_by="administrator",
    means="The nodes or GPUs that are left are unhealthy, cordoned or away.",
)
EXCEEDS_CAPACITY: Final = _reason(
    "ExceedsCapacity",
    set_by="queue",
    resolved_by="user",
    means="No node could ever serve the request, even with nothing else on it.",
)
QUOTA: Final = _reason(
    "Quota", set_by="queue", resolved_by="capacity", means="A limit keeps it back: of a GPUQuota, a group or the API."
)
PRIORITY: Final = _reason(
    "Priority", set_by="queue", resolved_by="capacity", means="The room is kept for a job of higher priority."
)
RESERVED: Final = _reason(
    "Reserved",
    set_by="queue",
    resolved_by="capacity",
    means="The room is kept for an earlier job, or by an advance reservation.",
)
PROVISIONING: Final = _reason(
    "Provisioning", set_by="queue", resolved_by="time", means="New nodes of a growing pool were requested for it."
)
EVALUATING: Final = _reason(
    "Evaluating", set_by="operator", resolved_by="time", means="A component has yet to take the next step."
)
BEGIN_TIME: Final = _reason(
    "BeginTime",
    set_by="operator",
    resolved_by="time",
    means="Its start, or that of its next attempt, is in the future.",
)
DEPENDENCY: Final = _reason(
    "Dependency", set_by="operator", resolved_by="time", means="Jobs that it depends on have not started or ended yet."
)
DEPENDENCY_FAILED: Final = _reason(
    "DependencyFailed",
    set_by="operator",
    resolved_by="user",
    means="A job that it depends on has ended with another result.",
)
INVALID: Final = _reason(
    "Invalid", set_by="operator", resolved_by="user", means="The job cannot be read, or its pods cannot be created."
)
HELD: Final = _reason("Held", set_by="operator", resolved_by="user", means="Its user, or its array, holds it.")
GANG_WAITING: Final = _reason(
    "GangWaiting",
    set_by="operator",
    resolved_by="time",
    means="Some of its workers run, and wait for others that have not started.",
)
EXTERNALLY_MANAGED: Final = _reason(
    "ExternallyManaged", set_by="operator", resolved_by="capacity", means="Kueue has yet to admit it."
)
CANCELLED: Final = _reason("Cancelled", set_by="operator", resolved_by="user", means="Its user has cancelled it.")
DEADLINE_EXCEEDED: Final = _reason(
    "DeadlineExceeded", set_by="operator", resolved_by="user", means="It ran longer than a limit of its spec."
)
TASKS_FAILED: Final = _reason(
    "TasksFailed", set_by="operator", resolved_by="user", means="Tasks of the array have ended with another result."
)
MEMORY_OVER_PROMISE: Final = _reason(
    "MemoryOverPromise",
    set_by="operator",
    resolved_by="user",
    means="It used more device memory than it was promised.",
)
SUSPENDED: Final = _reason(
    "Suspended", set_by="operator", resolved_by="time", means="An attempt ended because the job was suspended."
)
DISRUPTION_TARGET: Final = _reason(
    "DisruptionTarget", set_by="operator", resolved_by="time", means="An attempt ended because a worker was disrupted."
)
POD_FAILURE_POLICY: Final = _reason(
    "PodFailurePolicy", set_by="operator", resolved_by="user", means="A rule of the job's podFailurePolicy decided."
)
FAILED: Final = _reason("Failed", set_by="operator", resolved_by="user", means="A worker has failed.")
DELETED: Final = _reason("Deleted", set_by="operator", resolved_by="user", means="The job was deleted before its end.")
CONTAINER_CREATING: Final = _reason(
    "ContainerCreating", set_by="operator", resolved_by="time", means="kubelet is about to start the container."
)

# Conditions
ADMITTED: Final = _reason("Admitted", set_by="operator", resolved_by="nothing", means="The queue lets the job start.")
RELEASED: Final = _reason("Released", set_by="operator", resolved_by="nothing", means="The job is no longer held.")
TASKS_COMPLETED: Final = _reason(
    "TasksCompleted", set_by="operator", resolved_by="nothing", means="All tasks of the array have succeeded."
)
WITHIN_PROMISE: Final = _reason(
    "WithinPromise", set_by="operator", resolved_by="nothing", means="The job uses no more device memory than promised."
)
NO_GPU_WORK: Final = _reason(
    "NoGPUWork", set_by="operator", resolved_by="user", means="The job holds GPUs and leaves them idle."
)
GPU_WORK: Final = _reason("GPUWork", set_by="operator", resolved_by="nothing", means="The job's GPUs work again.")
UNHEALTHY: Final = _reason(
    "Unhealthy", set_by="operator", resolved_by="administrator", means="The job holds an unhealthy GPU."
)
HEALTHY: Final = _reason("Healthy", set_by="operator", resolved_by="nothing", means="The job's GPUs are healthy again.")
WHOLE_DEVICES: Final = _reason(
    "WholeDevices", set_by="operator", resolved_by="nothing", means="Each worker has its devices to itself."
)
NOT_REPORTED: Final = _reason(
    "NotReported", set_by="operator", resolved_by="administrator", means="The node's agent reports no enforcement."
)
MPS: Final = _reason("MPS", set_by="operator", resolved_by="nothing", means="MPS enforces the shares.")
TURNS: Final = _reason("Turns", set_by="operator", resolved_by="nothing", means="Tenants take turns on their devices.")
TIME_SLICING: Final = _reason(
    "TimeSlicing", set_by="operator", resolved_by="administrator", means="The driver alone shares the devices' time."
)
NONE: Final = _reason("None", set_by="operator", resolved_by="administrator", means="Nothing enforces the shares.")

# GPUQuotas
PARENT_MISSING: Final = _reason(
    "ParentMissing", set_by="operator", resolved_by="administrator", means="The parent of the GPUQuota does not exist."
)
PARENT_CIRCLE: Final = _reason(
    "ParentCircle", set_by="operator", resolved_by="administrator", means="The parents of the GPUQuota form a circle."
)
TIME_ZONE_UNKNOWN: Final = _reason(
    "TimeZoneUnknown",
    set_by="operator",
    resolved_by="administrator",
    means="A window of the GPUQuota names a time zone that does not exist.",
)
PARENT_NOT_TOGETHER: Final = _reason(
    "ParentNotTogether",
    set_by="operator",
    resolved_by="administrator",
    means="The parent counts each subject by itself, so nothing can be lent within it.",
)
CHILDREN_ABOVE_PARENT: Final = _reason(
    "ChildrenAboveParent",
    set_by="operator",
    resolved_by="administrator",
    means="The children guarantee more than the GPUQuota has.",
)
GUARANTEE_ABOVE_LIMIT: Final = _reason(
    "GuaranteeAboveLimit",
    set_by="operator",
    resolved_by="administrator",
    means="The GPUQuota guarantees more than it allows.",
)
GUARANTEES_ABOVE_CLUSTER: Final = _reason(
    "GuaranteesAboveCluster",
    set_by="operator",
    resolved_by="administrator",
    means="More is guaranteed than the cluster has.",
)
DEVICES_LOST: Final = _reason(
    "DevicesLost",
    set_by="operator",
    resolved_by="administrator",
    means="Devices that are guaranteed are not usable now.",
)
AS_SPECIFIED: Final = _reason(
    "AsSpecified", set_by="operator", resolved_by="nothing", means="The GPUQuota agrees with its tree."
)

# Events
PREEMPTING: Final = _reason(
    "Preempting", set_by="operator", resolved_by="nothing", means="The job is preempted after its grace period."
)
WORKER_REPLACED: Final = _reason(
    "WorkerReplaced", set_by="operator", resolved_by="nothing", means="A lost worker gets another node."
)
BAD_CARD: Final = _reason(
    "BadCard", set_by="operator", resolved_by="administrator", means="A GPU of the running job has become unhealthy."
)
IDLE: Final = _reason("Idle", set_by="operator", resolved_by="user", means="The idle policy finds the job's GPUs idle.")
LIVENESS_PROBE: Final = _reason(
    "LivenessProbe", set_by="operator", resolved_by="user", means="A time-shared job has a liveness probe."
)
NOTIFICATION_FAILED: Final = _reason(
    "NotificationFailed", set_by="operator", resolved_by="user", means="A notification was not sent to every address."
)
NOTIFICATIONS_LIMITED: Final = _reason(
    "NotificationsLimited",
    set_by="operator",
    resolved_by="time",
    means="The namespace has sent as many notifications as it may in an hour.",
)
RESHAPING: Final = _reason(
    "Reshaping", set_by="operator", resolved_by="time", means="A GPU is partitioned again for the job."
)
RESHAPED: Final = _reason(
    "Reshaped", set_by="operator", resolved_by="nothing", means="A GPU was partitioned again for the job."
)
RESHAPE_FAILED: Final = _reason(
    "ReshapeFailed", set_by="operator", resolved_by="administrator", means="A GPU could not be partitioned again."
)
NOT_COUNTED: Final = _reason(
    "NotCounted",
    set_by="operator",
    resolved_by="administrator",
    means="A ResourceQuota does not count Dovetail's GPUs.",
)
SERVICE_MISSING: Final = _reason(
    "ServiceMissing", set_by="operator", resolved_by="user", means="A gang's Service cannot be created."
)
START_ESTIMATED: Final = _reason(
    "StartEstimated",
    set_by="operator",
    resolved_by="time",
    means="An object of another kind, or a replica, waits and is expected to start at a time.",
)
NOT_QUEUED: Final = _reason(
    "NotQueued",
    set_by="operator",
    resolved_by="user",
    means="An object of another kind, or a pod of it, is not queued.",
)
NOT_ASKED_OF_DOVETAIL: Final = _reason(
    "NotAskedOfDovetail", set_by="operator", resolved_by="user", means="A pod requests GPUs of another scheduler."
)

REASONS: Final = {each.code: each for each in _all}
