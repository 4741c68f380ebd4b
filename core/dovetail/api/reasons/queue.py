"""Why the queue keeps a job waiting although it might fit, and what the estimate of its start rests on."""

from typing import Final

from dovetail.api.gpujob import QueuePlace
from dovetail.api.reasons.clause import Sentence, clause
from dovetail.api.reasons.codes import PRIORITY, PROVISIONING, QUOTA, RESERVED, RESOURCES

# Which nodes the sentence before is about
OPEN: Final = clause("Open", " (")
CLOSE: Final = clause("Close", ")")
COMMA: Final = clause("Comma", ", ")
IN_POOL: Final = clause("InPool", "in pool {pools}")
OF_CHOSEN: Final = clause("OfChosenNodes", "of the nodes that its nodeSelector or affinity allows")
OF_TOLERATED: Final = clause("OfToleratedNodes", "of the nodes whose taints it tolerates")
OF_CHOSEN_AND_TOLERATED: Final = clause(
    "OfChosenAndToleratedNodes", "of the nodes that its nodeSelector or affinity allows and whose taints it tolerates"
)

# Whom a limit binds, and what it allows
NAMESPACE: Final = clause("LimitOfNamespace", "Namespace {name}", reason=QUOTA)
USER: Final = clause("LimitOfUser", "User {name}", reason=QUOTA)
NAMELESS_USER: Final = clause("LimitOfNamelessUser", "A user without a name", reason=QUOTA)
ALL_BOUND: Final = clause("LimitOfQuota", "GPUQuota {quota}: all whom it binds", reason=QUOTA)
GROUP: Final = clause("LimitOfGroup", "Group {name}", reason=QUOTA)
MAY_RUN: Final = clause("MayRun", " may run {most}, {used} run")
MAY_USE: Final = clause("MayUse", " may use {most}, {used} are in use")
MAY_QUEUE: Final = clause("MayQueueJobs", " may have {most:job|jobs} in the queue, {used} are before this one")
MAY_RUN_JOBS: Final = clause("MayRunJobs", " may run {most:job|jobs} at a time, {used} run")
NEEDS: Final = clause("JobNeeds", ", this job needs {amount}")
NEEDS_AT_LEAST: Final = clause("JobNeedsAtLeast", ", this job needs at least {amount}")
NEVER_FITS: Final = clause("JobNeverFits", ", this job would never fit, it needs {amount}")
NEVER_FITS_AT_LEAST: Final = clause("JobNeverFitsAtLeast", ", this job would never fit, it needs at least {amount}")
POD_NEEDS: Final = clause("PodNeeds", ", this pod needs {amount}")
POD_NEEDS_AT_LEAST: Final = clause("PodNeedsAtLeast", ", this pod needs at least {amount}")
POD_NEVER_FITS: Final = clause("PodNeverFits", ", this pod would never fit, it needs {amount}")
POD_NEVER_FITS_AT_LEAST: Final = clause("PodNeverFitsAtLeast", ", this pod would never fit, it needs at least {amount}")
OF_PODS: Final = {
    NEEDS.code: POD_NEEDS,
    NEEDS_AT_LEAST.code: POD_NEEDS_AT_LEAST,
    NEVER_FITS.code: POD_NEVER_FITS,
    NEVER_FITS_AT_LEAST.code: POD_NEVER_FITS_AT_LEAST,
}
BY_QUOTA: Final = clause("ByQuota", " (GPUQuota {quota})")
WITHIN_GUARANTEE: Final = clause(
    "WithinGuaranteeAlone", "preemptible: false is allowed within a guarantee alone", reason=QUOTA
)
NO_GUARANTEE: Final = clause("NoGuarantee", ": no GPUQuota guarantees it any")
NONE_GUARANTEED: Final = clause("NoneGuaranteed", ": GPUQuota {quota} guarantees none of what it requests")
GUARANTEE_LEFT: Final = clause("GuaranteeLeft", ": GPUQuota {quota} guarantees {guaranteed}, {left} of them are left")
PRIORITY_ABOVE: Final = clause(
    "PriorityAboveBound", "{field} is {priority}: GPUQuota {quota} allows 0 to {most}", reason=QUOTA
)
POOL_NOT_ALLOWED: Final = clause(
    "PoolNotAllowed", "Asks for pool {asked}, GPUQuota {quota} allows {pools} alone", reason=QUOTA
)
NO_COMMON_POOL: Final = clause(
    "NoCommonPool", "GPUQuota {quota} allows pool {pools} alone, other quotas {others}", reason=QUOTA
)

# For whom room is kept
KEPT_FOR: Final = clause("KeptFor", "{count:GPU|GPUs} {count!is|are} kept for {job}", reason=RESERVED)
KEPT_FOR_ANOTHER: Final = clause(
    "KeptForAnother", "{count:GPU|GPUs} {count!is|are} kept for a job of another namespace", reason=RESERVED
)
KEPT_BY_QUOTA: Final = clause(
    "KeptByQuota",
    "{count:GPU|GPUs} are kept by GPUQuota {quota} until {until} (reservation {reservation})",
    reason=RESERVED,
)
KEPT_READY: Final = clause(
    "KeptReady",
    "{count:GPU|GPUs} {count!is|are} kept ready for GPUQuota {quota} (reserve): jobs may use them whose pods end "
    "within {seconds} s",
    reason=RESERVED,
)
OF_PRIORITY: Final = clause("OfPriority", ", of priority {priority}", reason=PRIORITY)
USED_LESS: Final = clause("UsedLess", ", which has used less recently", reason=RESERVED)
IS_OLDER: Final = clause("IsOlder", ", which is older", reason=RESERVED)

# Who ends for the job, and why no one else does
PREEMPTED_FOR_IT: Final = clause(
    "PreemptedForIt", "; {count:job|jobs} of lower priority {count!is|are} preempted for it"
)
MOVES_FOR_IT: Final = clause("MovesForIt", "; {count:job|jobs} {count!restarts|restart} on other nodes for it")
WOULD_MOVE: Final = clause(
    "WouldMove",
    "; it would start within {seconds} s if {count:running job|running jobs} restarted on other nodes "
    "({lost} GPU hours lost)",
)
NO_MOVES: Final = clause("NoMoves", "; no moves start it: ")
ENDED_FOR_IT: Final = clause(
    "EndedForIt", "; {count:job|jobs} of {count!a borrower|borrowers} {count!is|are} ended for it"
)
GUARANTEED: Final = clause("Guaranteed", "; GPUQuota {quota}: it is guaranteed {guaranteed}")
NOTHING_BACK: Final = clause("NothingComesBack", ", and nothing comes back: ")
TOO_LITTLE_LENT: Final = clause("TooLittleLent", "the jobs of borrowers ({lent}) do not leave enough room for {asked}")
NO_BORROWER: Final = clause("NoBorrowerCanEnd", "no job of a borrower can end without taking from its own guarantee")
FIRM: Final = clause("NotPreemptible", "; {amount} may not be preempted")
RESHAPING: Final = clause("Reshaping", "; reshaping {gpu} into {profiles}")
RESHAPING_FAILED: Final = clause("ReshapingFailed", "; {problem}")

# Growing pools
REQUESTED: Final = clause(
    "NodesRequested", "{nodes:node|nodes} of pool {pool} requested at {time}", reason=PROVISIONING
)
WOULD_BE_REQUESTED: Final = clause(
    "NodesWouldBeRequested", "{nodes:node|nodes} of pool {pool} would be requested", reason=PROVISIONING
)
ACCEPTED: Final = clause("AcceptedByAutoscaler", ", accepted by the cluster autoscaler")
PROVISIONED: Final = clause("ProvisionedByAutoscaler", ", provisioned by the cluster autoscaler")
REFUSED_BY_AUTOSCALER: Final = clause("RefusedByAutoscaler", ": {refusal}; requests again at {retry_time}")
NOT_SERVED: Final = clause("NotServed", " did not serve it within {duration}; requests again at {retry_time}")
POOL_FULL: Final = clause(
    "PoolFull",
    ": pool {pool} can have {most:node|nodes}, and other jobs use them or wait for them",
    reason=RESOURCES,
)
ON_CPU_AT: Final = clause("OnCPUAt", "; if it still waits at {time}, it runs on the CPU")

# What an estimated start rests on
ITS_TURN: Final = clause("TurnAfterOthers", "Its turn comes after jobs before it")
ON_CPU_FROM_THEN: Final = clause("OnCPUFromThen", "It runs on the CPU from then on")
VICTIMS_ENDED: Final = clause("VictimsHaveEnded", "The jobs preempted for it have ended by then at the latest")
WINDOW_OVER: Final = clause("WindowIsOver", "A reservation is over by then")
AND_WINDOW_OVER: Final = clause("AndWindowIsOver", ", and a reservation is over by then")

# Ends of running jobs, and what is known of these ends
ENDED_ON_NODE: Final = clause("EndedOnNode", "{jobs:job has|jobs have} ended on {node} by then")
ENDED_ON_NODES: Final = clause("EndedOnNodes", "{jobs:job has|jobs have} ended on {nodes} nodes by then")
BY_TIME_LIMITS: Final = clause("ByTimeLimits", " at the latest, by the time limits")
AS_CONFIGURED: Final = clause("AsConfigured", ", if {jobs} without a time limit run as long as is configured")
AS_JOBS_LIKE_THEM: Final = clause("AsJobsLikeThem", ", if they use as much of their time limits as jobs like them did")
AND_AS_CONFIGURED: Final = clause("AndAsConfigured", ", and {jobs} without one run as long as is configured")

# How the latest waits compare with what was foreseen of them
MOVED_EARLIER: Final = clause("MovedEarlier", "; moved earlier, as the latest jobs waited less than was foreseen")
MOVED_LATER: Final = clause("MovedLater", "; moved later, as the latest jobs waited longer than was foreseen")

# Of an operator that sets no clauses.
ON_BASIS: Final = clause("OnBasis", "{basis}")


def basis_of(place: QueuePlace) -> Sentence:
    """What the estimate of a place in the queue rests on."""
    if not place.basis_details:
        return ON_BASIS(basis=place.basis)
    return Sentence(message=place.basis, clauses=tuple(place.basis_details))
