"""The stage of a job whose batch Job runs, and why some of its workers have not started.

Pure.
"""

from collections.abc import Sequence
from typing import Any

from dovetail.api.builtin import Condition, Job, Pod, is_terminated
from dovetail.api.reasons import end as ends
from dovetail.api.reasons import start as starts
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.jobs.batch_job import deadline_seconds, is_external, is_guests, true_condition, worker_of
from dovetail.jobs.runs import has_a_scale
from dovetail.queue.inputs.candidates import fell_back
from dovetail_operator.devices import bad_devices, memory_overuse
from dovetail_operator.job import cpu_fallback
from dovetail_operator.job.actions import Action, DeleteJob, PatchJob, Stage
from dovetail_operator.job.failure_policy import inner_backoff_limit
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.plan_doubts import why_unplaced


def stage_at_work(seen: Observed, *, child: Job) -> Stage:
    """The stage of a job whose batch Job runs.

    Its pods decide whether it is starting or running.
    """
    adjust = _adjustments(seen, child=child)
    ending = true_condition(child, "SuccessCriteriaMet", "FailureTarget")
    if ending is not None:
        return Stage(phase="Running", why=ends.LAST_PODS(), admitted=True, actions=adjust)
    return _taken_back(seen, child=child) or _by_its_pods(seen, child=child, adjust=adjust)


def _taken_back(seen: Observed, *, child: Job) -> Stage | None:
    """The stage of a job that may not go on as it is; None if it may."""
    if seen.overtaken:
        # A gang runs completely or not at all: bound pods are released, and the whole job gets a new plan.
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", why=starts.NEW_PLAN(why=seen.overtaken), admitted=False, actions=(suspend,))
    if (why := memory_overuse.ending(seen.overuses)) is not None and not seen.refusing_budget:
        return Stage(phase="Failed", why=why, admitted=True, actions=(DeleteJob(disrupts=True),))
    if seen.bad_cards and seen.leaves_bad_cards and seen.job.spec.reservation is None:
        elsewhere = starts.OTHER_DEVICES(why=bad_devices.sentence(seen.bad_cards))
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", why=elsewhere, admitted=False, actions=(suspend,))
    if size := _size_of_others(seen, child=child):
        # A part of a gang would wait for the rest forever, and added workers have no planned room.
        resize = PatchJob(spec={"suspend": True, **size})
        return Stage(phase="Queued", why=starts.OTHER_SIZE(), admitted=False, actions=(resize,))
    if (why := _scaled(seen, child=child)) is not None:
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", why=why, admitted=False, actions=(suspend,))
    return None


def _scaled(seen: Observed, *, child: Job) -> Sentence | None:
    """Why an elastic job restarts with another number of workers; None if it goes on.

    With fewer, it restarts at once. With more, it restarts once the queue finds room for more than it has: else it
    would lose its work for nothing.
    """
    asked, workers = seen.asked_workers, child.spec.completions
    if seen.job.status.elastic is None or asked is None or workers is None or not has_a_scale(seen.job, child=child):
        return None
    if workers > asked:
        return starts.SCALED_DOWN(asked=asked, workers=workers)
    return starts.SCALED_UP(asked=asked, workers=workers) if seen.scales_up else None


def _by_its_pods(seen: Observed, *, child: Job, adjust: tuple[Action, ...]) -> Stage:
    pods = [pod for pod in seen.pods if pod.metadata.deletion_timestamp is None]
    waiting = [pod for pod in pods if pod.status.phase != "Running" and not is_terminated(pod)]
    started = {worker_of(pod) for pod in pods if pod.status.phase == "Running"}
    again = {worker_of(pod) for pod in waiting}
    ended = {worker_of(pod) for pod in pods if is_terminated(pod)} - again
    leaving = len(pods) < len(seen.pods)
    why = _why_not_started(waiting, leaving=leaving)
    if is_guests(seen.job) and not (pods or seen.job.spec.workers):
        return Stage(phase="Running", why=_how_it_runs(seen, child=child), admitted=True, actions=adjust)
    if not started and (waiting or not ended):
        if leaving and not waiting and seen.job.status.phase == "Running":
            # The Job controller ends pods before its status says why; or a user has deleted them.
            return Stage(phase="Running", why=why.with_reason(""), admitted=True, actions=adjust)
        return Stage(phase="Starting", why=why, admitted=True, actions=adjust)
    absent = seen.job.spec.workers - len(started | ended) - _succeeded_before(child, ended=ended)
    if absent <= 0:
        return Stage(phase="Running", why=_how_it_runs(seen, child=child), admitted=True, actions=adjust)
    why = starts.WORKERS_WAIT(absent=absent, workers=seen.job.spec.workers) + why.with_reason("")
    return Stage(phase="Running", why=why, admitted=True, actions=adjust)


def _size_of_others(seen: Observed, *, child: Job) -> dict[str, int]:
    """The fields that restore the size of a batch Job after an edit; empty without one."""
    workers, spec = seen.job.spec.workers, child.spec
    if is_external(seen.job) or spec.completions is None or spec.parallelism is None:
        # Kueue may admit a part of the workers.
        return {}
    if spec.completions == workers and spec.parallelism >= workers:
        return {}
    return {"completions": workers, "parallelism": workers}


def _how_it_runs(seen: Observed, *, child: Job) -> Sentence:
    """What is unusual about a job whose workers all run; mostly empty."""
    if seen.refusing_budget:
        return ends.KEPT_BY_BUDGET(budget=seen.refusing_budget)
    if fell_back(child):
        return cpu_fallback.explain(child)
    asked, workers = seen.asked_workers, seen.job.spec.workers
    if asked is None or workers >= asked:
        return NOTHING
    if is_guests(seen.job):
        return ends.FEWER_FOR_OBJECT(workers=workers, asked=asked)
    if seen.wants_more:
        return ends.SCALES_UP_LATER(workers=workers, asked=asked)
    limit = seen.job.status.elastic.limit if seen.job.status.elastic is not None else ""
    if not limit:
        return ends.FEWER_FIT(workers=workers, asked=asked)
    return ends.FEWER_BY_LIMIT(workers=workers, asked=asked, limit=limit)


def _succeeded_before(child: Job, *, ended: set[int]) -> int:
    return max(0, child.status.succeeded - len(ended))


def _adjustments(seen: Observed, *, child: Job) -> tuple[Action, ...]:
    """Limits that may change while the job runs, where they differ from the batch Job's."""
    job, batch = seen.job, child.spec
    if is_guests(job):
        # Its limits are its own controller's.
        return ()
    changed: dict[str, Any] = {}
    if batch.backoff_limit != (backoff_limit := inner_backoff_limit(job)):
        changed["backoffLimit"] = backoff_limit
    if batch.active_deadline_seconds != (limit := deadline_seconds(job, child=child)):
        changed["activeDeadlineSeconds"] = limit
    return (PatchJob(spec=changed),) if changed else ()


def _why_not_started(waiting: Sequence[Pod], *, leaving: bool) -> Sentence:
    """Why the first worker that has not started did not. The message is never empty."""
    if not waiting:
        return starts.PODS_LEAVING() if leaving else starts.PODS_UNMADE()
    pod = min(waiting, key=worker_of)
    if pod.spec.node_name:
        return _why_not_running(pod)
    scheduled = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    # The condition of a gate outlives the gate for a moment.
    if scheduled is None or scheduled.status != "False" or scheduled.reason == "SchedulingGated":
        return starts.SCHEDULER_TO_COME()
    return _why_unscheduled(scheduled)


def _why_unscheduled(scheduled: Condition) -> Sentence:
    if scheduled.reason == "SchedulerError":
        return starts.SCHEDULER_ERROR(message=scheduled.message)
    return why_unplaced(scheduled.message)


def _why_not_running(pod: Pod) -> Sentence:
    """Why a bound pod does not run, with kubelet's own reason."""
    node = pod.spec.node_name
    for container in pod.status.container_statuses:
        if container.state.waiting is not None and container.state.waiting.reason:
            waiting = container.state.waiting
            if waiting.message:
                return starts.CONTAINER_WAITS(node=node, message=waiting.message).with_reason(waiting.reason)
            return starts.CONTAINER_NOT_STARTED(node=node).with_reason(waiting.reason)
    return starts.CONTAINER_TO_START(node=node)
