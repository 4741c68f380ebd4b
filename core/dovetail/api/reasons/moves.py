"""What moves would do for a waiting job, and why there are none."""

from typing import Final

from dovetail.api.reasons.clause import clause

# The summary of an answer
NONE_FOR: Final = clause("NoMovesFor", "No moves for job {job}: ")
NONE_FOR_NUMBERED: Final = clause("NoMovesForNumbered", "No moves for job {number} ({job}): ")
STARTS_WITHIN: Final = clause("StartsByMovesWithin", " starts within {time}")
INSTEAD_OF: Final = clause("InsteadOf", " instead of {time}")
IF_JOBS_RESTART: Final = clause(
    "IfJobsRestart",
    " if {count:running job|running jobs} {count!restarts|restart} elsewhere: {lost} GPU hours are lost, and {gained} "
    "are used earlier",
)

# Why there is no plan, at the end of a sentence about the job
NO_JOBS: Final = clause("NoJobsToMove", "no set of jobs that may move makes room for it")
DELAY: Final = clause("MovesDelayAnother", "the moves that make room for it would delay the start of another job")
USED_UP: Final = clause("MovesUsedUp", "moves.per_hour allows no further move within this hour")
NOT_NEEDED: Final = clause("StartsWithoutMoves", "it starts without moves")
LOSE_MORE: Final = clause("MovesLoseMore", "the moves would lose {lost} device-seconds and gain {gained}")
QUEUE_REFUSES: Final = clause("WaitsAfterMoves", "the queue would not start it after the moves: ")
NO_GPU: Final = clause("MovesFreeGPUs", "it requests no GPU, and moves free GPUs")
INSTANCES: Final = clause(
    "MovesFreeNoInstances", "it requests MIG instances ({profile}), and moves free whole GPUs and shares"
)
TURNS: Final = clause(
    "MovesFreeNoTurns", "it takes turns (TimeShared), and moves free GPUs that it would not have alone"
)
UNDER_WAY: Final = clause("MovesUnderWay", "jobs move for it already")
DOES_NOT_WAIT: Final = clause("DoesNotWaitForRoom", "it does not wait for room (phase {phase})")

# Notes
BUDGETS_UNREAD: Final = clause(
    "BudgetsUnread",
    "PodDisruptionBudgets may not be read, so the plan may need one more pod of one to end than it allows",
)
