"""Explanations: the sentence that says how it is with a pod, a job or a request."""

from typing import Final

from dovetail.api.reasons.clause import clause

# What is explained
JOB: Final = clause("ExplainedJob", "Job {job}")
JOB_NUMBERED: Final = clause("ExplainedNumberedJob", "Job {number} ({job})")
POD: Final = clause("ExplainedPod", "Pod {namespace}/{pod}")
REQUEST: Final = clause("ExplainedRequest", "{request}")

# A request that has room. After a colon it goes on with a small letter.
ALL_FIT: Final = clause("AllFit", "All {workers} workers fit now: {fitting} of {nodes} nodes have room for one")
AND_ALL_FIT: Final = clause("AndAllFit", "all {workers} workers fit now: {fitting} of {nodes} nodes have room for one")
FITS: Final = clause("FitsNow", "Fits now on {fitting} of {nodes} nodes, best on {node}")
AND_FITS: Final = clause("AndFitsNow", "fits now on {fitting} of {nodes} nodes, best on {node}")
WITH_DEVICES: Final = clause("WithDevices", " with GPU {indexes}")
SEARCHED_POOLS: Final = clause("SearchedPools", " (in pool {pools})")

# What it waits for
WAITS: Final = clause("ExplainedWaits", " waits: ")
WAITS_FOR_SCHEDULER: Final = clause("WaitsForScheduler", " waits for kube-scheduler: ")
WAITS_FOR_QUEUE: Final = clause("WaitsForQueue", " waits for the queue: ")
WOULD_BE_WITHOUT_HOLD: Final = clause("ExplainedHeld", " is held; without that: ")

# Where it is
IS_ON: Final = clause("IsOn", " is on ")
ON_WITH_DEVICES: Final = clause("OnWithDevices", "{node} with GPU {indexes}")
NEXT_NODE: Final = clause("NextNode", ", ")
AND_NODES: Final = clause("AndNodes", " and {count} more")
NOT_REPORTED_YET: Final = clause(
    "DevicesNotReported", "{nodes}; the node's agent has not reported yet which GPUs kubelet gave it"
)
NOT_ALLOCATED: Final = clause("NotAllocated", "{nodes} with no allocation: `dovetail audit` says what is wrong")

# Why the engine is not asked
HAS_ENDED: Final = clause("ExplainedEnded", " has ended: {phase}")
IN_BRACKETS: Final = clause("InBrackets", " ({why})")
UNREADABLE_REQUEST: Final = clause("ExplainedUnreadable", " its request cannot be read: {problem}")
ANNOTATION_ALONE: Final = clause(
    "AnnotationAlone",
    ' carries the annotation {annotation}: "{request}", but its containers ask for none of our resources',
)
ASKS_NO_GPU_OF_DOVETAIL: Final = clause("AsksNoGPUOfDovetail", " asks Dovetail for no GPU: {scheduler} alone places it")
NAMES_OTHER_SCHEDULER: Final = clause(
    "NamesOtherScheduler", " names the scheduler {scheduler}, not {own}: Dovetail never sees it"
)
ASKS_NO_GPU: Final = clause("AsksNoGPU", " requests no GPU: it starts wherever enough CPU and memory is free")
RUNS_ON_CPU: Final = clause("RunsOnCPU", " runs on the CPU")

# Why a node is closed to the pods regardless of room
SELECTOR_ASKS: Final = clause("SelectorAsks", "the node selector asks for {what}")
TAINT_NOT_TOLERATED: Final = clause("TaintNotTolerated", "the taint {what} is not tolerated")
AFFINITY_ELSEWHERE: Final = clause("AffinityElsewhere", "the required node affinity names other nodes")
NOT_IN_POOLS: Final = clause("NotInPools", "not in pool {pools}")
