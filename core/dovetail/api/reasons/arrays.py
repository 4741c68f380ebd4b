"""What an array or a sweep says of its tasks."""

from typing import Final

from dovetail.api.reasons.clause import clause
from dovetail.api.reasons.codes import CANCELLED, EVALUATING, HELD, INVALID, TASKS_FAILED

CANCELLED_AND_ENDING: Final = clause(
    "CancelledAndEnding", "Cancelled on request: waiting for {left:task|tasks} to end", reason=CANCELLED
)
CANCELLED_WITH_TASKS: Final = clause(
    "CancelledWithTasks",
    "Cancelled on request: {succeeded} of {total} tasks had succeeded",
    reason=CANCELLED,
)
HELD_WITH_TASKS: Final = clause("HeldWithTasks", "Held with its tasks: gjob release lets them go on", reason=HELD)
TASKS_UNREADABLE: Final = clause("TasksUnreadable", "{problem}", reason=INVALID)
TASKS_UNDER_WAY: Final = clause(
    "TasksUnderWay",
    "{running} of {total} tasks {running!runs|run}, {ended} {ended!has|have} ended, {waiting} {waiting!waits|wait}",
)
TASKS_UNMADE: Final = clause("TasksUnmade", "Its tasks are about to be made", reason=EVALUATING)
TASKS_THAT_FAILED: Final = clause("TasksThatFailed", "{count} of {total} tasks failed: {tasks}", reason=TASKS_FAILED)
TASK_SAYS: Final = clause("TaskSays", "; task {task}: ")
IN_EVALUATION: Final = clause("InEvaluation", "it is being evaluated", reason=EVALUATING)
NOT_MADE: Final = clause("TaskNotMade", "; task {task} is not made: ")
NONE_MADE: Final = clause("NoTaskMade", "Task {task} is not made: ")
NO_FURTHER: Final = clause("NoFurtherTask", "; no further task is made: ")
