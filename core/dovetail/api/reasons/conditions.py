"""The conditions of jobs: their sentences, and the condition that states one."""

from typing import Final, Literal

from dovetail.api.meta import Condition
from dovetail.api.reasons.clause import Sentence, clause
from dovetail.api.reasons.codes import (
    ADMITTED,
    GPU_WORK,
    HEALTHY,
    MPS,
    NO_GPU_WORK,
    NONE,
    NOT_REPORTED,
    RELEASED,
    TASKS_COMPLETED,
    TIME_SLICING,
    TURNS,
    UNHEALTHY,
    WHOLE_DEVICES,
    WITHIN_PROMISE,
)

BY_THE_QUEUE: Final = clause("AdmittedByQueue", "Admitted by the queue", reason=ADMITTED)
WITH_SOME: Final = clause("AdmittedWithSome", " with {workers} of {asked} workers")
WITH_ALL: Final = clause("AdmittedWithAll", " with all {workers} workers")
NO_LONGER_HELD: Final = clause("NoLongerHeld", "No longer held by spec.suspend", reason=RELEASED)
ARRAY_RELEASED: Final = clause("ArrayReleased", "No longer held", reason=RELEASED)
ALL_SUCCEEDED: Final = clause("AllTasksSucceeded", "All tasks have succeeded", reason=TASKS_COMPLETED)
KEEPS_TO_PROMISE: Final = clause(
    "KeepsToPromise", "The job uses no more memory than it was promised any more", reason=WITHIN_PROMISE
)
IDLE_SINCE: Final = clause("IdleSince", "No GPU work since {time}", reason=NO_GPU_WORK)
NOT_IDLE: Final = clause("NotIdle", "Its GPUs work, or are given back", reason=GPU_WORK)
HELD_GPUS_UNHEALTHY: Final = clause("HeldGPUsUnhealthy", "{gpus}", reason=UNHEALTHY)
GPU_UNHEALTHY: Final = clause("HeldGPUUnhealthy", "GPU {index} of {node} ({device}) is unhealthy")
NONE_UNHEALTHY: Final = clause("NoneUnhealthy", "The job holds no unhealthy GPU any more", reason=HEALTHY)

# What enforces the mode
ALONE: Final = clause("DevicesAlone", "Each worker has its devices to itself", reason=WHOLE_DEVICES)
UNREPORTED: Final = clause("EnforcementUnreported", "No agent tells what is enforced", reason=NOT_REPORTED)
BY_MPS: Final = clause("EnforcedByMPS", "MPS holds compute and memory", reason=MPS)
SHARES_UNENFORCED: Final = clause("SharesUnenforced", "Nothing holds the shares", reason=NONE)
IN_TURNS: Final = clause("InTurns", "Tenants take turns on their devices", reason=TURNS)
BY_DRIVER: Final = clause(
    "SharedByDriver", "The driver shares its time among all, whatever their priority", reason=TIME_SLICING
)
TIME_UNSHARED: Final = clause("TimeUnshared", "Nothing shares the devices' time", reason=NONE)
ON_NODES: Final = clause("OnNodes", " (on {nodes})")
AND_OTHER_NODES: Final = clause("AndOtherNodes", " (on {nodes} and {more} more)")


def condition(
    type_: str, *, status: Literal["True", "False", "Unknown"], why: Sentence, at: str, generation: int = 0
) -> Condition:
    """The condition that states this sentence, since `at` (RFC 3339)."""
    return Condition(
        type=type_,
        status=status,
        reason=why.reason,
        message=why.message,
        last_transition_time=at,
        observed_generation=generation,
    )
