"""Explanations: the sentence that says how it is with a pod, a job or a request, and the notes below it."""

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

# Notes on a job in the queue
QUEUE_SAYS: Final = clause("QueueSays", "the queue says {reason}: ")
WORDS: Final = clause("StatusWords", "{message}")
AT_PLACE: Final = clause("AtPlace", "it is at place {position} of the queue")
EXPECTED_AT: Final = clause("ExpectedAt", "it is expected to start at {time}")
BOUNDS: Final = clause("StartBounds", "its bounds, which nine in ten starts are to keep: {earliest} to {latest}")
BOUNDS_HELD: Final = clause("BoundsHeld", " ({percent}% of the latest jobs here did)")
ROOM_KEPT: Final = clause("RoomKept", "room is kept for its workers on {nodes}, for {time} at the latest")
TRY_MOVES: Final = clause(
    "TryMoves", "others that restart elsewhere may leave it room: dovetail move plan {number} tries that"
)
ADMITTED: Final = clause(
    "AdmittedWithoutNode", "the queue has admitted it: {missing} of {workers} workers have no node yet"
)
IS_HELD: Final = clause("ExplainedIsHeld", "it is held")
IS_SUSPENDED: Final = clause("ExplainedIsSuspended", "it is suspended")
NOT_SEEN: Final = clause("NotSeenYet", "no operator has seen it yet")
LIMITS_NOT_COUNTED: Final = clause("LimitsNotCounted", "limits are not counted: that takes the right to list GPUQuotas")

# Notes on a pod
GATED: Final = clause("GatedPod", "kube-scheduler does not look at it while it has the gates {gates}")
QUEUED_AS: Final = clause("QueuedAs", "it waits in the queue as GPUJob {job}")
REASON_AND_WORDS: Final = clause("ReasonAndWords", ": {reason}, ")
EXPLAIN_SAYS_MORE: Final = clause("ExplainSaysMore", "dovetail explain job {job} says more")
EXPLAIN_SAYS_WHY: Final = clause("ExplainSaysWhy", ", and dovetail explain {job} says what for")
SEATS_TAKEN: Final = clause(
    "SeatsTaken", "its gate opens once another pod of GPUJob {job} has ended: all seats are taken"
)
GATE_OPENS_AT_START: Final = clause("GateOpensAtStart", "its gate opens when GPUJob {job} starts, which is {phase} now")
REMEDY: Final = clause("PodRemedy", "{remedy}")

# How nodes and devices are compared
MAY_DIFFER: Final = clause("ChoicesMayDiffer", "{shortcoming}; the choices in the cluster may be others")
BY_BEST_FIT: Final = clause("ByBestFit", "nodes and devices are compared by best fit")
NODES_COMPARED: Final = clause("NodesCompared", "nodes are compared ")
AND_DEVICES: Final = clause("AndDevicesCompared", ", as the queue plans, and devices ")
FRAGMENTATION_IS: Final = clause("FragmentationComputed", "fragmentation is computed ")
BY_TERM: Final = clause("ByTermOn", "by {term} on ")
MIX_SUBMITTED: Final = clause("MixSubmitted", "what was submitted so far")
MIX_HERE: Final = clause(
    "MixOfRequests",
    "the mix of the {count} requests of jobs and pods here; the queue's own mix has those that are gone as well",
)
MIX_SEEN: Final = clause("MixSeen", "the mix of the pods that the extender has seen")
MIX_OF_PODS: Final = clause(
    "MixOfPods",
    "the mix of the {count} pods that ask for GPUs here; the extender's own mix has those that are gone as well",
)
