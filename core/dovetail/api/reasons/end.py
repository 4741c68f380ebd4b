"""How a job or one of its attempts has ended, and what is unusual about one that runs."""

from typing import Final

from dovetail.api.reasons.clause import clause
from dovetail.api.reasons.codes import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    DELETED,
    DISRUPTION_TARGET,
    FRAGMENTATION,
    MEMORY_OVER_PROMISE,
    NODE_UNHEALTHY,
    PRIORITY,
    SUSPENDED,
)

CANCELLED_BY_SPEC: Final = clause("CancelledBySpec", "Cancelled on request", reason=CANCELLED)
LEASE_ENDED: Final = clause(
    "LeaseEnded",
    "Its lease has ended: it was not renewed in time",
    reason=DEADLINE_EXCEEDED,
)
TOTAL_TIME_USED: Final = clause(
    "TotalTimeUsed",
    "Ran longer than its limit of {seconds} s in all",
    reason=DEADLINE_EXCEEDED,
)
OVER_LIMIT_OF_JOB: Final = clause(
    "OverLimitOfJob",
    "Ran longer than a limit set in its Job by another client (activeDeadlineSeconds)",
    reason=DEADLINE_EXCEEDED,
)
OVER_LIMIT: Final = clause("OverLimit", "Ran longer than its time limit of {seconds} s", reason=DEADLINE_EXCEEDED)
CONTAINER_FAILED: Final = clause(
    "ContainerFailed", "Worker {worker} failed on {node}: container {container} ended with exit code {exit_code}"
)
PROGRAM_FAILED: Final = clause("ProgramFailed", "Worker {worker} failed on {node}: exit code {exit_code}")
IN_WORDS: Final = clause("InWords", " ({word})")
WORKER_FAILED: Final = clause("WorkerFailed", "Worker {worker} failed on {node}: {message}")
JOB_CONTROLLER_SAYS: Final = clause("JobControllerSays", "{message}")
FAILED_POD_GONE: Final = clause("FailedPodGone", ": the worker that failed is gone (was it deleted?)")
BY_RULE: Final = clause("ByRule", ", which by spec.podFailurePolicy.rules[{index}] fails the job at once")
NO_RETRIED_CODE: Final = clause("NoRetriedCode", ", which is none of spec.retryPolicy.exitCodes ({codes})")
ATTEMPT: Final = clause("OfAttempt", " (attempt {attempt}, {retries:retry|retries} used)")
SUSPENDED_PODS: Final = clause("SuspendedPods", "Its workers were ended because it was held", reason=SUSPENDED)
DISRUPTED: Final = clause("WorkerDisrupted", "A worker was disrupted, which costs no retry", reason=DISRUPTION_TARGET)
OVER_PROMISE: Final = clause(
    "OverPromise",
    "Pod {pod} uses {used_mib} MiB of GPU {index} ({device}), but was promised {promised_mib} MiB",
    reason=MEMORY_OVER_PROMISE,
)
ENDED_FOR_OVERUSE: Final = clause("EndedForOveruse", "Ended by memory_overuse: ", reason=MEMORY_OVER_PROMISE)
KEPT_BY_BUDGET: Final = clause(
    "KeptByBudget",
    "Goes on although memory_overuse would end it: PodDisruptionBudget {budget} lets no more of its pods end now",
)
LIMIT_HAD_PASSED: Final = clause(
    "LimitHadPassed", "The time limit had passed when its workers were deleted", reason=DEADLINE_EXCEEDED
)
NAMESPACE_DELETED: Final = clause("NamespaceDeleted", "Its namespace was deleted before it had ended", reason=DELETED)

# While it runs
LAST_PODS: Final = clause("LastPods", "The job is over: waiting for its last workers to end")
FEWER_FOR_OBJECT: Final = clause(
    "FewerForObject",
    "Runs with {workers} of {asked} workers: its object asks for no more, and the others hold nothing",
)
FEWER_BY_LIMIT: Final = clause(
    "FewerByLimit",
    "Runs with {workers} of {asked} workers, as many as {limit} left it: it may take more when it restarts",
)
FEWER_FIT: Final = clause(
    "FewerFit", "Runs with {workers} of {asked} workers, as many as fit: it may take more when it restarts"
)
SCALES_UP_LATER: Final = clause(
    "ScalesUpLater",
    "Runs with {workers} workers: it restarts with up to {asked} when more fit and no other job waits for capacity",
)
IS_EMPTIED: Final = clause("NodeIsEmptied", "Restarts on other nodes, because {node} is to be emptied")
PREEMPTED_FOR: Final = clause("PreemptedFor", "Is preempted for {job} of priority {priority}, its own is {own}")
PREEMPTED_FOR_ANOTHER: Final = clause(
    "PreemptedForAnother", "Is preempted for a job of another namespace of priority {priority}, its own is {own}"
)
MOVES_FOR: Final = clause("MovesFor", "Restarts on other nodes, where room is held for it, so that {job} starts")
MOVES_FOR_ANOTHER: Final = clause(
    "MovesForAnother",
    "Restarts on other nodes, where room is held for it, so that a job of another namespace starts",
)
RECLAIMED: Final = clause(
    "Reclaimed",
    "Is ended for GPUQuota {quota}: it is guaranteed {guaranteed}, and a job of it needs {gpus}",
)
LEAVES_RESERVE: Final = clause(
    "LeavesReserve",
    "Is ended for GPUQuota {quota}: {gpus:GPU|GPUs} of its guarantee are to be ready (reserve), and the pods of this "
    "job need more than {seconds} s to end",
)
ENDED_FOR_JOB: Final = clause("EndedForJob", "{why}", reason=PRIORITY)
ENDED_FOR_MOVE: Final = clause("EndedForMove", "{why}", reason=FRAGMENTATION)
ENDED_FOR_DRAIN: Final = clause("EndedForDrain", "{why}", reason=NODE_UNHEALTHY)
NOTICE: Final = clause("PreemptionNotice", "{why}: its workers are ended at {time}")
