"""Why a node refuses a pod or a worker: the kinds of refusals, and their sentences.

A sentence that all nodes with one cause share comes first, then those that have a node's numbers.
"""

from collections.abc import Mapping
from typing import Final

from dovetail.api.reasons.clause import clause, for_devices
from dovetail.api.reasons.codes import Resolver

# What resolves each kind.
KINDS: Final[Mapping[str, Resolver]] = {
    "NoGPU": "administrator",
    "WrongVendor": "user",
    "WrongModel": "user",
    "TooFewDevices": "user",
    "DeviceIndex": "user",
    "NotManaged": "user",
    "Cordoned": "administrator",
    "Unhealthy": "administrator",
    "Quota": "capacity",
    "DevicesBusy": "capacity",
    "ShareShort": "capacity",
    "MemoryGuard": "capacity",
    "TenantLimit": "capacity",
    "ModeConflict": "capacity",
    "Held": "time",
    "CPUOrMemoryShort": "capacity",
}

NODE_UNKNOWN: Final = clause("NodeUnknown", "node is not known yet")
HOST_TOO_SMALL: Final = clause("HostTooSmall", "too little CPU or memory in addition to the GPUs")
NO_INSTANCE: Final = clause("NoInstance", "no MIG instance of {profile}")
NO_GPU: Final = clause("NoGPU", "no GPU reported")
NO_RESOURCE: Final = clause("NoResource", "no {resource} here")
NOT_MANAGED: Final = clause("NotManaged", "not a node that Dovetail manages")
WRONG_VENDOR: Final = clause("WrongVendor", "no GPU of vendor {vendor}")
WRONG_MODEL: Final = clause("WrongModel", "no GPU")
FEWER: Final = for_devices("FewerGPUs", "FewerInstances", "fewer than {count:#}")
WITH_MEMORY: Final = clause("WithMemory", " with {memory_mib} MiB")
WITH_MEMORY_SHARE: Final = clause("WithMemoryShare", " with {percent} % of its memory")
WRONG_INDEX: Final = clause("WrongIndex", "no such device as {device}")
HEALTHY: Final = clause("HealthyOnes", " healthy")
NOT_CORDONED: Final = clause("NotCordoned", " not cordoned")
COULD_BE_CORDONED: Final = clause("CouldBeCordoned", "kubelet could pick a cordoned GPU")
BUSY: Final = for_devices("GPUsBusy", "InstancesBusy", "need {count:#} free, too many are busy")
OTHER_MODE: Final = clause("OtherMode", "GPUs are in another mode than {mode}")
NO_SHARE: Final = clause("NoShare", "no GPU has a share of {share} left")
NO_MEMORY: Final = clause("NoMemory", "no GPU has the memory left")
HELD: Final = clause("HeldForOthers", "GPUs are held for other pods")
BEYOND_QUOTA: Final = clause("BeyondQuota", "beyond a quota")
NEVER_TOGETHER: Final = clause(
    "ContainersNeverFit", "the GPUs of the pod's {containers} containers do not fit together, ever"
)
NOT_TOGETHER_NOW: Final = clause(
    "ContainersDoNotFitNow", "the GPUs of the pod's {containers} containers do not fit together now"
)
OUTSIDE_POOL: Final = clause("OutsidePool", "not in pool {pools}, to which a GPUQuota keeps namespace {namespace}")
PLAN_FAILED: Final = clause("PlanFailed", "the job's plan has failed: the queue makes a new one")
OTHER_NODE: Final = clause("OtherNode", "the job's plan has another node for this worker")
OTHER_SEAT: Final = clause("OtherSeat", "the pod's request is not that of the job whose seat it has")
SEAT_IS: Final = clause("SeatIs", ": it asks {asked}, and the seat is {seat}")
BIND_UNSETTLED: Final = clause("BindUnsettled", "the pod's bind to another node is not settled yet")

# With the numbers of a node
MOST_TENANTS: Final = clause("MostTenants", ", at most {most} on one")
MUST_BE_MOVABLE: Final = clause(
    "MustBeMovable",
    "tenants are moved to the host there, for which its one container must request {needed_mib} MiB of memory",
)
PODS_FULL: Final = clause("PodsFull", "it takes {pods} pods, and has them")
HOST_FREE: Final = clause(
    "HostFree",
    "need {cpu_milli}m CPU and {memory_mib} MiB, only {free_cpu_milli}m and {free_memory_mib} MiB available",
)
SHARE_FREE: Final = clause("ShareFree", "need a share of {share}, the most left on one GPU is {left}")
MEMORY_FREE: Final = clause("MemoryFree", "need {needed_mib} MiB on a GPU, the most left on one is {left_mib} MiB")
OF_SO_MANY: Final = for_devices("OfSoManyGPUs", "OfSoManyInstances", " ({count:#})")
OF_SIZES: Final = clause("OfSizes", " ({count:GPU|GPUs}: {sizes})")
