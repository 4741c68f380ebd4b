"""What would make a job fit: what others could do, and what it could request instead.

A change is a clause that says what to do, with what is before and after it: for whom, and where the job then fits.
"""

from typing import Final

from dovetail.api.reasons.clause import clause, for_devices

FOR_ONE_MORE_WORKER: Final = clause("ForOneMoreWorker", "for one more worker: ")
ONCE_OTHERS_HAVE_LEFT: Final = clause("OnceOthersHaveLeft", " once others have left")

# Ends of other jobs
FREES: Final = clause("FreesWhen", "frees on {node} when ")
HOLDING_JOB: Final = clause("HoldingJob", "job {job}")
HOLDING_JOB_OF: Final = clause("HoldingJobOf", "job {job} of namespace {namespace}")
HOLDING_POD: Final = clause("HoldingPod", "pod {pod}")
NEXT_HOLDER: Final = clause("NextHolder", ", ")
AND_HOLDERS: Final = clause("AndHolders", " and {count} more")
ENDS: Final = clause("HolderEnds", " ends")
END: Final = clause("HoldersEnd", " end")
AT_THE_LATEST: Final = clause("AtTheLatest", ", at the latest {time}")

# What administrators could repair
UNCORDON: Final = clause("Uncordon", "uncordon {devices} on {node}")
UNCORDON_NODE: Final = clause("UncordonNode", "uncordon node {node}")
UNCORDON_BOTH: Final = clause("UncordonNodeAndDevices", "uncordon node {node} and {devices}")
REPAIR: Final = clause("Repair", "{devices} on {node} would have to be healthy again")
REPAIR_NODE: Final = clause("RepairNode", "node {node} would have to be ready")
REPAIR_BOTH: Final = clause("RepairNodeAndDevices", "node {node} and {devices} would have to be ready and healthy")
SERVE_BY_ONE_SIDE: Final = clause("ServeByOneSide", "node {node} would have to be served by one side alone: {conflict}")
END_STRANGERS: Final = clause(
    "EndStrangers", "end the processes that Dovetail does not manage on {devices} on {node} ({mib} MiB)"
)

# Other requests
FEWER_WORKERS: Final = clause("AskFewerWorkers", "ask for at most {count:worker|workers} instead of {asked}")
FEWER_GPUS: Final = for_devices("AskFewerGPUs", "AskFewerInstances", "ask for at most {count:#} instead of {asked}")
OTHER_PROFILE: Final = clause("AskOtherProfile", "ask for the MIG profile {profile} instead of {asked}")
SMALLER_SHARE: Final = clause("AskSmallerShare", "ask for a share of at most {share} instead of {asked}")
SHARE_OF_WHOLE: Final = clause("AskShareOfWhole", "ask for a share of at most {share} instead of a whole GPU")
LESS_MEMORY: Final = clause(
    "AskLessMemory", "ask for at most {memory_mib} MiB of memory on each GPU instead of {asked_mib} MiB"
)
LESS_PERCENT: Final = clause(
    "AskLessPercent", "ask for at most {percent} % of the memory of each GPU instead of {asked} %"
)
ANY_MODEL: Final = clause("AskAnyModel", "ask for any model instead of {asked}")
SMALLER_CARDS: Final = clause("AskSmallerGPUs", "ask for GPUs of at least {gb} GB instead of {asked_gb} GB")
ANY_DEVICE: Final = clause("AskAnyDevice", "ask for any device instead of {device}")
LESS_CPU: Final = clause("AskLessCPU", "ask for at most {most_milli}m of CPU instead of {asked_milli}m")
LESS_HOST_MEMORY: Final = clause(
    "AskLessHostMemory", "ask for at most {most_mib} MiB of memory instead of {asked_mib} MiB"
)
LESS_CPU_AND_MEMORY: Final = clause(
    "AskLessCPUAndMemory",
    "ask for at most {most_milli}m of CPU instead of {asked_milli}m and {most_mib} MiB of memory instead of "
    "{asked_mib} MiB",
)
WIDER_TOPOLOGY: Final = clause("RequireWider", "require {level} instead of {required}")
PREFERRED_TOPOLOGY: Final = clause("PreferInstead", "prefer {required} instead of requiring it")
DROP_SELECTOR: Final = clause("DropSelector", "drop {what} from the node selector")
TOLERATE: Final = clause("Tolerate", "tolerate the taint {what}")
DROP_AFFINITY: Final = clause("DropAffinity", "drop the required node affinity")
FITS_ON: Final = clause("FitsOn", ": fits on {node}")
FITS_AS: Final = clause("FitsAs", ": {request} fits on {node}")
STARTS_ON: Final = clause("StartsOn", ": starts now on {nodes}")

# More nodes
ADD_NODES: Final = clause("AddNodes", "add {count} nodes")
ADD_NODE: Final = clause("AddNode", "add a node")
WITH_ROOM_FOR: Final = clause("WithRoomFor", " with room for {request}")
ADD_ADVERTISING: Final = clause("AddNodeAdvertising", "add a node that advertises {resource}")

# What helps against a limit, a reservation or the order of the queue
END_BEFORE_RESERVATION: Final = clause(
    "EndBeforeReservation",
    "give the job a time limit that ends it before the reservation begins, or wait until that is over",
)
WAIT_FOR_NODES: Final = clause(
    "WaitForNodes", "wait until an autoscaler adds the nodes, or ask for what existing nodes have"
)
ASK_WITHIN_LIMIT: Final = clause("AskWithinLimit", "ask for no more than the limit, or have it raised")
ASK_ALLOWED_POOL: Final = clause("AskAllowedPool", "ask for a pool that the quota allows")
WAIT_FOR_LIMIT: Final = clause(
    "WaitForLimit", "wait until some of what counts for the limit has ended, or have it raised"
)
WAIT_FOR_KEPT: Final = clause(
    "WaitForKept",
    "wait until the job that the room is kept for has started, or set a time limit that ends before that",
)
WAIT_FOR_BEFORE: Final = clause(
    "WaitForBefore", "wait until the jobs before it in the queue have started and some have ended"
)
