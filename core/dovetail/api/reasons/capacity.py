"""Why workers do not fit: sentences of the placement."""

from typing import Final

from dovetail.api.reasons.clause import clause, for_devices
from dovetail.api.reasons.codes import EXCEEDS_CAPACITY, FRAGMENTATION, MEMORY_GUARD, NODE_UNHEALTHY, RESOURCES

_EVER: Final = EXCEEDS_CAPACITY
_HOST: Final = "{cpu_milli}m CPU and {memory_mib} MiB of memory"

COLON: Final = clause("Colon", ": ")
SEMICOLON: Final = clause("Semicolon", "; ")

NEED: Final = for_devices(
    "TooFewGPUs", "TooFewInstances", "Need {count:#}, only {available} available", reason=RESOURCES
)
ON_ONE_NODE: Final = clause("OnOneNode", " on one node")

# What is missing now
HOST_SHORT: Final = clause("HostShort", f"Need {_HOST}, no node has it available", reason=RESOURCES)
HOST_SHORT_EACH: Final = clause(
    "HostShortEach", f"Need {_HOST} for each of {{workers}} workers, no node has it available", reason=RESOURCES
)
NOT_TOGETHER: Final = for_devices(
    "GPUsNotTogether", "InstancesNotTogether", ": {free:#} are free, but not together", reason=FRAGMENTATION
)
APART: Final = for_devices(
    "GPUsNotApart",
    "InstancesNotApart",
    ": {free:#} are free, but each worker takes a node of its own",
    reason=RESOURCES,
)
MEMORY_LEFT: Final = clause(
    "MemoryLeft",
    ": need {needed_mib} MiB of memory on a GPU, the most left on one is {left_mib} MiB",
    reason=MEMORY_GUARD,
)
WITH_ROOM_FOR_A_POD: Final = clause("WithRoomForAPod", " on a node that takes one more worker", reason=RESOURCES)
WITH_HOST: Final = clause("WithHost", f" with {_HOST} in addition")
SHARE_LEFT: Final = clause("ShareLeft", ": the largest share left on one is {share}", reason=RESOURCES)
WORKLOAD_FULL: Final = clause("WorkloadFull", "every GPU has its {workload} tenants")
TURNS_TAKEN: Final = clause("TurnsTaken", "all turns on the GPUs are taken")
TURNS_OR_WORKLOAD: Final = clause(
    "TurnsTakenOrWorkloadFull", "all turns on the GPUs are taken, or every GPU has its {workload} tenants"
)
OTHERS_CLOSED: Final = clause("OthersClosed", "the others are unhealthy or cordoned", reason=NODE_UNHEALTHY)
AND_MORE: Final = clause("AndMore", ", and {count} more")

# What no node could ever serve
TOGETHER: Final = for_devices(
    "GPUsNeverTogether",
    "InstancesNeverTogether",
    ": at most {capacity} of {workers} workers with {count:#} each could ever run together",
    reason=_EVER,
)
TOGETHER_WITH_HOST: Final = for_devices(
    "GPUsAndHostNeverTogether",
    "InstancesAndHostNeverTogether",
    f": at most {{capacity}} of {{workers}} workers with {{count:#}}, {_HOST} each could ever run together",
    reason=_EVER,
)
NO_NODE: Final = clause("NoNodeWillDo", "No node will do")
NO_NODE_FOR_IT: Final = clause("NoNodeForIt", "There is no node for it", reason=_EVER)
KEPT_OFF: Final = clause(
    "KeptOffEveryNode", ": node selector, affinity and taints keep the pod off every node", reason=_EVER
)
ON_OWN_NODES: Final = clause("OnOwnNodes", ", each on a node of its own")
LARGEST_EVER: Final = clause("LargestEver", ": the largest request that could ever fit is {most}", reason=_EVER)
NO_VENDOR: Final = clause("NoVendor", "no node has vendor {vendor}, there is {vendors}", reason=_EVER)
NO_SUCH_MEMORY: Final = clause(
    "NoSuchMemory",
    "need {needed_mib} MiB on a GPU, the largest that could ever be promised is {most_mib} MiB",
    reason=_EVER,
)
NO_SUCH_MEMORY_SHARE: Final = clause(
    "NoSuchMemoryShare",
    "need {percent} % of its memory on a GPU, the largest that could ever be promised is {most_mib} MiB",
    reason=_EVER,
)
DEVICE_NOWHERE: Final = clause("DeviceNowhere", "{device} is on no node with such a GPU", reason=_EVER)
NO_INDEX: Final = clause("NoIndex", "no node has a device cuda:{index}, the highest is cuda:{highest}", reason=_EVER)
NO_INDEX_ON_NODE: Final = clause(
    "NoIndexOnNode", "node {node} has no device cuda:{index}, the highest is cuda:{highest}", reason=_EVER
)
NO_HOST: Final = clause("NoHost", f"no node has the {_HOST} in addition to its GPUs", reason=_EVER)
NO_MODEL: Final = clause("NoModel", "no node has model {models}", reason=_EVER)
NO_GPU_OF: Final = clause("NoGPUOf", "no node has a GPU", reason=_EVER)
OF_MODEL: Final = clause("OfModel", " of model {models}")
BUT_MODEL: Final = clause("ButModel", " but {models}")
OF_AT_LEAST: Final = clause("OfAtLeast", " of at least {gb} GB")
THERE_IS: Final = clause("ThereIs", ", there is {found}")
DID_YOU_MEAN: Final = clause("DidYouMean", '; did you mean "{model}"?')
A_GPU: Final = clause("AGPU", "a GPU")
MODELS: Final = clause("Models", "{models}")
BY_PLUGIN_ALONE: Final = clause(
    "ByPluginAlone", " is served by a vendor's plugin alone, which gives whole ones only", reason=_EVER
)
NODES_BY_PLUGIN: Final = clause(
    "NodesByPlugin", "the nodes with GPUs are served by a vendor's plugin, which gives whole ones only", reason=_EVER
)
NOT_ADVERTISED: Final = clause("NotAdvertised", "no node advertises {resource}", reason=_EVER)
NO_GPU_REPORTED: Final = clause("NoGPUReported", "no node reports a GPU", reason=_EVER)
NO_GPU_ON_MACHINE: Final = clause("NoGPUOnMachine", "this machine has no GPU", reason=_EVER)
NO_PROFILE_ALLOWED: Final = clause(
    "NoProfileAllowed", "none of the nodes that may be used has a MIG instance of {profile}", reason=_EVER
)
NO_PROFILE: Final = clause("NoProfile", "no node has a MIG instance of {profile}, there is {profiles}", reason=_EVER)
NO_PROFILE_AT_ALL: Final = clause(
    "NoProfileAtAll", "no node has a MIG instance of {profile}, there is none of any profile", reason=_EVER
)
# One's own machine, which no other node joins
MACHINE_CPUS: Final = clause(
    "MachineCPUs", "Need {cpus:CPU|CPUs}: the largest request that fits this machine is {most}", reason=_EVER
)
MACHINE_MEMORY: Final = clause(
    "MachineMemory",
    "Need {needed_mib} MiB of memory: the largest request that fits this machine is {most_mib} MiB",
    reason=_EVER,
)
MACHINE_TOGETHER: Final = clause(
    "MachineTogether",
    f"At most {{capacity}} of {{workers}} workers with {_HOST} each could ever run together on this machine",
    reason=_EVER,
)
# A node may still report what is missing
NOT_REPORTED: Final = clause("NotReported", "; node {node} has not reported its GPUs yet", reason=NODE_UNHEALTHY)
NOT_REPORTED_MORE: Final = clause(
    "NotReportedMore", "; node {node} and {count} more have not reported their GPUs yet", reason=NODE_UNHEALTHY
)

# Domains of a gang
WANTED: Final = for_devices("NeedGPUs", "NeedInstances", "Need {count:#}", reason=RESOURCES)
IN_ONE: Final = clause("InOneDomain", " in one {level}")
IN_EACH: Final = for_devices("GPUsInEachGroup", "InstancesInEachGroup", " with {count:#} in each {level}")
NO_LABEL: Final = clause("NoLabel", ", no node has the label {label}", reason=_EVER)
MOST_IN_DOMAIN: Final = clause("MostInDomain", ", at most {most} could ever run in {domain}", reason=_EVER)
MOST_IN_CLUSTER: Final = clause("MostInCluster", ", at most {most} could ever run in the cluster", reason=_EVER)
DOMAIN_HAS: Final = clause("DomainHas", ", {domain} has {free}", reason=RESOURCES)
CLUSTER_HAS: Final = clause("ClusterHas", ", the cluster has {free}", reason=RESOURCES)
NOT_IN_ONE: Final = for_devices(
    "GPUsNotInOneDomain",
    "InstancesNotInOneDomain",
    ": {free:#} are free, but not in one {level}",
    reason=FRAGMENTATION,
)
NOT_IN_GROUPS: Final = for_devices(
    "GPUsNotInGroups", "InstancesNotInGroups", ": {free:#} are free, but not in such groups", reason=FRAGMENTATION
)
PARTS_DO_NOT_ADD_UP: Final = clause(
    "PartsDoNotAddUp", ", the free parts of devices do not add up", reason=FRAGMENTATION
)
BUT: Final = clause("But", ", but ", reason=FRAGMENTATION)
AND: Final = clause("And", " and ")
MOST_ON_EACH: Final = clause("MostOnEach", "at most {most:worker|workers} on each {label}")
SKEW_OF_EACH: Final = clause("SkewOfEach", "the number of workers on each {label} may differ by {skew}")
