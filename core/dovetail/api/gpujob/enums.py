"""The closed sets of a GPUJob, and its bounds. Data only."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

KIND: Final = "GPUJob"
# 68 years. Beyond 292 the Job controller's clock overflows, and a job would be over its limit at once.
MAX_SECONDS: Final = 2**31 - 1
Mode = Literal["Exclusive", "Fractional", "TimeShared"]
Policy = Literal["Spread", "Pack", "Balanced"]
# In lower case: scripts and documentation write them in capitals too, and each way of writing means the same.
POLICIES_BY_LETTERS: Final[Mapping[str, Policy]] = {policy.lower(): policy for policy in get_args(Policy)}
Workload = Literal["Training", "Inference"]
Phase = Literal[
    "Queued", "Held", "Starting", "Running", "Suspended", "Succeeded", "Failed", "Cancelled", "TimedOut", "Preempted",
]  # fmt: skip
Restart = Literal["Gang", "Worker"]
Moves = Literal["Never", "Restart"]
DependencyCondition = Literal["Succeeded", "Finished", "Started"]
DependencyState = Literal["Met", "Waiting", "Unknown", "Failed"]
FINISHED: Final[frozenset[Phase]] = frozenset({"Succeeded", "Failed", "Cancelled", "TimedOut"})
Reason = Literal[
    "Held", "BeginTime", "Dependency", "DependencyFailed", "Invalid", "ExceedsCapacity", "Quota", "Priority",
    "Resources", "Fragmentation", "MemoryGuard", "GangWaiting", "Reserved", "NodeUnhealthy", "ExternallyManaged",
    "Evaluating", "Provisioning",
]  # fmt: skip
