"""The status and the actions of an array or a sweep, whose tasks are GPUJobs. Pure.

The next task follows from the existing tasks and from those whose end the status records. A restart at any point
therefore continues from there, and creates no task twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from dovetail.api.gpujob import FINISHED, GPUJob, GPUJobStatus, Phase, Tasks, is_finished
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons import arrays as says
from dovetail.api.reasons.clause import NOTHING, Sentence, sentence_from
from dovetail.api.reasons.codes import EVALUATING
from dovetail.api.reasons.conditions import ALL_SUCCEEDED, ARRAY_RELEASED, condition
from dovetail.formats.durations import human, moment, timestamp
from dovetail.jobs.array_indexes import as_text, indexes_in
from dovetail.jobs.array_tasks import Task, TasksError, tasks_of
from dovetail.jobs.batch_job import is_going
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.arrays import task_updates
from dovetail_operator.arrays.task_index import task_index
from dovetail_operator.arrays.task_manifest import manifests_of, parallelism_of
from dovetail_operator.arrays.task_updates import is_in_line
from dovetail_operator.job.actions import Action, CreateTask
from dovetail_operator.job.observation import Observed

# The number of actions per reconcile, so that a large array does not block other jobs.
_AT_ONCE: Final = 32
_BEGUN: Final[frozenset[Phase]] = frozenset({"Running", "Starting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The tasks by outcome: indexes of the ended ones, and GPUJobs of the unfinished ones."""

    tasks: Sequence[Task]
    succeeded: frozenset[int]
    failed: frozenset[int]
    under_way: Sequence[GPUJob]

    @property
    def in_line(self) -> list[GPUJob]:
        """Unfinished tasks without those that a user holds: a held task leaves its turn to others."""
        return [task for task in self.under_way if is_in_line(task)]

    @property
    def missing(self) -> list[Task]:
        """Tasks without a GPUJob."""
        there = {task_index(each) for each in self.under_way} | self.succeeded | self.failed
        return [task for task in self.tasks if task.index not in there]


def reconcile(seen: Observed) -> tuple[GPUJobStatus, tuple[Action, ...]]:
    """Decide the status of an array or a sweep, and the actions to run before it is written."""
    try:
        progress = progress_of(seen)
    except TasksError as error:
        return _build_status(seen, progress=None, phase="Queued", why=says.TASKS_UNREADABLE(problem=str(error))), ()
    changes = task_updates.changes(seen.job, tasks=progress.under_way, at_a_time=parallelism_of(seen.job))
    actions = (*changes, *_creations(seen, progress=progress))[:_AT_ONCE]
    phase, why = _where(seen, progress=progress)
    return _build_status(seen, progress=progress, phase=phase, why=why), actions


def progress_of(seen: Observed) -> Progress:
    """The progress of the tasks, from existing tasks and the status. Raises `TasksError`."""
    noted = seen.job.status.tasks
    succeeded = set(_read(noted.succeeded_indexes if noted else ""))
    failed = set(_read(noted.failed_indexes if noted else ""))
    under_way = []
    for each in seen.tasks:
        index = task_index(each)
        if index in succeeded | failed:
            continue
        if not is_finished(each):
            under_way.append(each)
        else:
            (succeeded if each.status.phase == "Succeeded" else failed).add(index)
    return Progress(
        tasks=tasks_of(seen.job),
        succeeded=frozenset(succeeded),
        failed=frozenset(failed),
        under_way=sorted(under_way, key=task_index),
    )


def _read(text: str) -> list[int]:
    return indexes_in(text) if text else []


def _creations(seen: Observed, *, progress: Progress) -> list[Action]:
    spec = seen.job.spec
    if spec.cancel or spec.suspend or is_going(seen.job) or seen.obstacle is not None or seen.number is None:
        return []
    room = parallelism_of(seen.job) - len(progress.in_line)
    free = [task for task in progress.missing if task.name not in seen.in_the_way]
    tasks = free[: min(max(0, room), _AT_ONCE)]
    return [CreateTask(manifest=manifest) for manifest in manifests_of(tasks, parent=seen.job, number=seen.number)]


def _in_the_way(seen: Observed, *, progress: Progress) -> tuple[Task, Obstacle] | None:
    """The first task whose name another GPUJob has, and the obstacle; None without one."""
    return next(((task, seen.in_the_way[task.name]) for task in progress.missing if task.name in seen.in_the_way), None)


def _where(seen: Observed, *, progress: Progress) -> tuple[Phase, Sentence]:
    job, total = seen.job, len(progress.tasks)
    ended = len(progress.succeeded) + len(progress.failed)
    if job.spec.cancel:
        left, good = len(progress.under_way), len(progress.succeeded)
        if left:
            return "Running", says.CANCELLED_AND_ENDING(left=left)
        return "Cancelled", says.CANCELLED_WITH_TASKS(succeeded=good, total=total)
    if ended >= total:
        return _over(progress)
    if job.spec.suspend:
        return ("Suspended" if ended or progress.under_way else "Held"), says.HELD_WITH_TASKS()
    if seen.obstacle is not None and not progress.under_way:
        if seen.obstacle.reason == "DependencyFailed" and job.spec.on_dependency_failure == "Cancel":
            return "Cancelled", seen.obstacle
        return "Queued", seen.obstacle
    blocked = _in_the_way(seen, progress=progress)
    phase, why = _under_way(progress, ended=ended)
    if blocked is not None:
        why = _with_blocked(seen, progress, *blocked, why=why)
    if seen.obstacle is not None and progress.missing:
        # The unfinished tasks continue, and none of them would show why no further task is created.
        why = (why + says.NO_FURTHER() + seen.obstacle).with_reason(why.reason)
    return phase, why


def _with_blocked(seen: Observed, progress: Progress, task: Task, obstacle: Obstacle, *, why: Sentence) -> Sentence:
    """What is said of an array that cannot create a task. Its other tasks continue."""
    blocked = why + says.NOT_MADE(task=task.index) + obstacle
    if progress.under_way or any(each.name not in seen.in_the_way for each in progress.missing):
        return blocked.with_reason(why.reason)
    return blocked if progress.succeeded or progress.failed else says.NONE_MADE(task=task.index) + obstacle


def _over(progress: Progress) -> tuple[Phase, Sentence]:
    if not progress.failed:
        return "Succeeded", NOTHING
    count, total = len(progress.failed), len(progress.tasks)
    return "Failed", says.TASKS_THAT_FAILED(count=count, total=total, tasks=as_text(progress.failed))


def _under_way(progress: Progress, *, ended: int) -> tuple[Phase, Sentence]:
    total = len(progress.tasks)
    running = sum(each.status.phase == "Running" for each in progress.under_way)
    said = says.TASKS_UNDER_WAY(running=running, total=total, ended=ended, waiting=total - running - ended)
    if running or ended:
        return "Running", said
    first = next(iter(progress.in_line or progress.under_way), None)
    if first is None:
        return "Queued", says.TASKS_UNMADE()
    why = sentence_from(first.status) if first.status.message else says.IN_EVALUATION()
    phase: Phase = "Starting" if any(each.status.phase in _BEGUN for each in progress.under_way) else "Queued"
    return phase, said + says.TASK_SAYS(task=task_index(first)) + why.with_reason(why.reason or EVALUATING.code)


def _build_status(seen: Observed, *, progress: Progress | None, phase: Phase, why: Sentence) -> GPUJobStatus:
    before = seen.job.status
    tasks = seen.tasks
    start = min((each.status.start_time for each in tasks if each.status.start_time), default=before.start_time)
    start = min((time for time in (start, before.start_time) if time), default=None)
    end = None
    if phase in FINISHED:
        end = max((each.status.completion_time for each in tasks if each.status.completion_time), default=None)
        end = end or timestamp(seen.now)
    return msgspec.structs.replace(
        before,
        observed_generation=seen.job.metadata.generation,
        number=seen.number,
        phase=phase,
        reason=why.reason,
        message=why.message,
        details=why.listed,
        request=before.request if seen.ask is None else str(seen.ask.gpu or "cpu"),
        gpus=sum(each.status.gpus for each in tasks if each.status.phase == "Running"),
        dependencies=list(seen.dependencies),
        simulated=seen.simulated,
        tasks=before.tasks if progress is None else _counted(progress),
        start_time=start,
        completion_time=end,
        elapsed="" if start is None or end is None else human((moment(end) - moment(start)).total_seconds()),
        conditions=_conditions(seen, phase=phase, why=why),
    )


def _counted(progress: Progress) -> Tasks:
    running = sum(each.status.phase == "Running" for each in progress.under_way)
    over = len(progress.succeeded) + len(progress.failed)
    return Tasks(
        total=len(progress.tasks),
        waiting=len(progress.tasks) - over - running,
        running=running,
        succeeded=len(progress.succeeded),
        failed=len(progress.failed),
        succeeded_indexes=as_text(progress.succeeded),
        failed_indexes=as_text(progress.failed),
    )


def _conditions(seen: Observed, *, phase: Phase, why: Sentence) -> list[Condition]:
    """The conditions, as on a batch Job: Suspended while held, at the end Complete or Failed."""
    found = []
    if phase in {"Held", "Suspended"}:
        found.append(_condition(seen, "Suspended", status="True", why=why))
    elif find_condition(seen.job.status.conditions, type="Suspended") is not None:
        found.append(_condition(seen, "Suspended", status="False", why=ARRAY_RELEASED()))
    if phase == "Succeeded":
        found.append(_condition(seen, "Complete", status="True", why=ALL_SUCCEEDED()))
    elif phase in FINISHED:
        found.append(_condition(seen, "Failed", status="True", why=why))
    return found


def _condition(seen: Observed, type_: str, *, status: Literal["True", "False"], why: Sentence) -> Condition:
    before = find_condition(seen.job.status.conditions, type=type_)
    since = before.last_transition_time if before is not None and before.status == status else timestamp(seen.now)
    return condition(type_, status=status, why=why, at=since, generation=seen.job.metadata.generation)
