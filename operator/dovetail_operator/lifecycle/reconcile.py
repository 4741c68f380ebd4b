"""Decide the status and the actions of one GPUJob from its observation.

Pure, level-triggered.

No state is kept between two calls: a restart at any point leads to the same result.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.gpujob import FINISHED, GPUJobStatus, is_finished
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import is_external, is_going, is_guests, is_parent, kept_by
from dovetail.jobs.start_times import begin_of, due_again
from dovetail_operator.arrays import array_status
from dovetail_operator.job import plan
from dovetail_operator.job.actions import Action, CreateJob, DeleteGPUJob, DeleteJob
from dovetail_operator.job.observation import Observed
from dovetail_operator.lifecycle import kueue, preemption
from dovetail_operator.lifecycle.stages import stage_of
from dovetail_operator.lifecycle.status import status_of

_NOTING_SECONDS: Final = 1
_BUDGET_SECONDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The new status, the actions that precede its write or follow it (`is_status_first`), and the next reconcile.

    `notify` are the pods whose preemption annotation has to change. `wake_at` is None if only an event matters.
    """

    status: GPUJobStatus
    actions: tuple[Action, ...] = ()
    notify: tuple[preemption.NotifyPod, ...] = ()
    wake_at: datetime | None = None


def reconcile(seen: Observed) -> Outcome:
    """Decide what the job's status should be and which actions lead there."""
    if is_going(seen.job) and (is_finished(seen.job) or seen.number is None or not kept_by(seen.job)):
        return Outcome(status=seen.job.status)
    if is_guests(seen.job) and seen.child is None:
        # Its guest has gone, and it goes too; or its guest has not been read yet.
        return Outcome(status=seen.job.status)
    if is_finished(seen.job):
        return _finished(seen)
    if is_parent(seen.job):
        return _of_array(seen)
    of_others = kueue.stage_of(seen) if _may_be_kueues(seen) else None
    stage = preemption.with_preemption(seen, stage=of_others or stage_of(seen))
    status = status_of(seen, stage=stage)
    wake_at = seen.now if stage.ended else _next_refresh(seen, status=status)
    due = preemption.due_at(status)
    return Outcome(
        status=status,
        actions=stage.actions,
        notify=preemption.to_notify(seen),
        wake_at=min((at for at in (wake_at, due) if at is not None), default=None),
    )


def _may_be_kueues(seen: Observed) -> bool:
    """Whether the job names a queue of Kueue, or may have done so when its batch Job was made."""
    return not is_going(seen.job) and (seen.child is not None or is_external(seen.job))


def is_status_first(seen: Observed, *, outcome: Outcome) -> bool:
    """Whether the status must be written before the actions run.

    - The annotation of the pods names the plan of the status, unless the batch Job carries the plan.
    - A job that runs again has its count of preemptions there.
    - An array's status says that the array was seen before its many tasks are created.
    """
    if is_parent(seen.job) and seen.job.status.phase is None:
        return True
    if carries_plan(outcome):
        return False
    if plan.is_written_first(outcome.status, before=seen.job.status, child=seen.child):
        return True
    return bool(outcome.actions) and preemption.is_written_first(seen, status=outcome.status)


def carries_plan(outcome: Outcome) -> bool:
    """Whether an action creates a batch Job that carries the plan, which the status gets later."""
    return any(isinstance(action, CreateJob) and action.carries_plan for action in outcome.actions)


def _of_array(seen: Observed) -> Outcome:
    status, actions = array_status.reconcile(seen)
    wake_at = seen.now if actions else _next_refresh(seen, status=status)
    return Outcome(status=status, actions=actions, wake_at=wake_at)


def _finished(seen: Observed) -> Outcome:
    """A finished job keeps its status. What remains is to delete its objects."""
    generation, ttl = seen.job.metadata.generation, seen.job.spec.ttl_seconds_after_finished
    # Tells an editor that the operator has seen the change, although it has no effect.
    status = msgspec.structs.replace(seen.job.status, observed_generation=generation)
    actions: list[Action] = []
    if status.phase == "Cancelled" and seen.child is not None and seen.child.metadata.deletion_timestamp is None:
        actions.append(DeleteJob())
    if ttl is None or status.completion_time is None:
        return Outcome(status=status, actions=tuple(actions))
    due = moment(status.completion_time) + timedelta(seconds=ttl)
    if due <= seen.now and (seen.awaited or not seen.recorded):
        # Dependents that have not recorded the job's end would wait forever, and the history would miss it.
        return Outcome(status=status, actions=tuple(actions), wake_at=seen.now + timedelta(seconds=_NOTING_SECONDS))
    if due <= seen.now:
        return Outcome(status=status, actions=(DeleteGPUJob(),))
    return Outcome(status=status, actions=tuple(actions), wake_at=due)


def _next_refresh(seen: Observed, *, status: GPUJobStatus) -> datetime | None:
    if status.phase in FINISHED:
        ttl = seen.job.spec.ttl_seconds_after_finished
        end = moment(status.completion_time) if status.completion_time else seen.now
        return None if ttl is None else end + timedelta(seconds=ttl)
    if seen.refusing_budget:
        return seen.now + timedelta(seconds=_BUDGET_SECONDS)
    if status.phase in {"Queued", "Preempted"} and seen.obstacle is not None and seen.obstacle.until is not None:
        return seen.obstacle.until
    if status.reason == "BeginTime":
        return max((due for due in (begin_of(seen.job), due_again(seen.job)) if due), default=None)
    return None
