"""Where a job is whose batch Job is at work, and why not all of its workers have started. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from dovetail.api.builtin import Condition, Job, Pod
from dovetail.jobs.batch_job import is_external, true_condition, worker_of
from dovetail.jobs.deadlines import deadline_seconds
from dovetail.queue.inputs.ways import fell_back
from dovetail_operator.devices import bad_devices, memory_overuse
from dovetail_operator.job import retries
from dovetail_operator.job.actions import Action, DeleteJob, PatchJob, Stage
from dovetail_operator.job.observation import Observed

# Said when the batch Job is about to be made, and as long as it has no pods: one sentence is one write of the status.
UNMADE: Final = "Waiting for the Job controller to create the pods"
_ENDED_PODS: Final = frozenset({"Succeeded", "Failed"})


def stage_at_work(seen: Observed, child: Job) -> Stage:
    """The batch Job is at work: its pods say whether the job is starting or running."""
    adjust = _adjustments(seen, child)
    ending = true_condition(child, "SuccessCriteriaMet", "FailureTarget")
    if ending is not None:
        message = "The job is over: waiting for its last pods to end"
        return Stage(phase="Running", message=message, admitted=True, actions=adjust)
    return _taken_back(seen, child) or _by_its_pods(seen, child, adjust=adjust)


def _taken_back(seen: Observed, child: Job) -> Stage | None:
    """Where it is to go on no longer, as it is; None where it may."""
    if seen.overtaken:
        # All of it or nothing: what is bound goes back, and the whole job is planned anew.
        message = f"Gets a new plan: {seen.overtaken}"
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=(suspend,))
    if why := memory_overuse.ending(seen.overuses):
        return Stage(phase="Failed", reason=memory_overuse.REASON, message=why, admitted=True, actions=(DeleteJob(),))
    if seen.bad_cards and seen.leaves_bad_cards and seen.job.spec.reservation is None:
        message = f"Is started anew elsewhere: {bad_devices.told(seen.bad_cards)}"
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=(suspend,))
    if size := _size_of_others(seen, child):
        # A part of a gang waits in vain for the rest, and what nobody planned has no room.
        message = "Is started anew: somebody has changed the parallelism or completions of its Job"
        resize = PatchJob(spec={"suspend": True, **size})
        return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=(resize,))
    return None


def _by_its_pods(seen: Observed, child: Job, *, adjust: tuple[Action, ...]) -> Stage:
    pods = [pod for pod in seen.pods if pod.metadata.deletion_timestamp is None]
    waiting = [pod for pod in pods if pod.status.phase not in {"Running", *_ENDED_PODS}]
    started = {worker_of(pod) for pod in pods if pod.status.phase == "Running"}
    again = {worker_of(pod) for pod in waiting}
    ended = {worker_of(pod) for pod in pods if pod.status.phase in _ENDED_PODS} - again
    leaving = len(pods) < len(seen.pods)
    reason, message = _why_not_started(waiting, leaving=leaving)
    if not started and (waiting or not ended):
        if leaving and not waiting and seen.job.status.phase == "Running":
            # The Job controller ends pods before it says why; or somebody has deleted them.
            return Stage(phase="Running", message=message, admitted=True, actions=adjust)
        return Stage(phase="Starting", reason=reason, message=message, admitted=True, actions=adjust)
    absent = seen.job.spec.workers - len(started | ended) - _succeeded_before(child, ended)
    if absent <= 0:
        return Stage(phase="Running", message=_how_it_runs(seen, child), admitted=True, actions=adjust)
    message = f"{absent} of {seen.job.spec.workers} workers wait: {message}"
    return Stage(phase="Running", reason="GangWaiting", message=message, admitted=True, actions=adjust)


def _size_of_others(seen: Observed, child: Job) -> dict[str, int]:
    """What has to be set right in a batch Job that somebody has made smaller or larger; empty where nobody has."""
    workers, spec = seen.job.spec.workers, child.spec
    if is_external(seen.job) or spec.completions is None or spec.parallelism is None:
        # Kueue may let a part of the workers go.
        return {}
    if spec.completions == workers and spec.parallelism >= workers:
        return {}
    return {"completions": workers, "parallelism": workers}


def _how_it_runs(seen: Observed, child: Job) -> str:
    """What is out of the ordinary about a job all of whose workers run; mostly nothing."""
    if fell_back(child):
        return "Runs on the CPU: no GPU here could ever serve it (onNoGPU)"
    asked, workers = seen.asked_workers, seen.job.spec.workers
    if asked is None or workers >= asked:
        return ""
    limit = seen.job.status.elastic.limit if seen.job.status.elastic is not None else ""
    left = f"{limit} left it" if limit else "fit"
    return f"Runs with {workers} of {asked} workers, as many as {left}: it may take more when it restarts"


def _succeeded_before(child: Job, ended: set[int]) -> int:
    return max(0, child.status.succeeded - len(ended))


def _adjustments(seen: Observed, child: Job) -> tuple[Action, ...]:
    """Limits that may change while the job runs, where they differ from the batch Job's."""
    job, batch = seen.job, child.spec
    changed: dict[str, Any] = {}
    if batch.backoff_limit != (backoff_limit := retries.inner_backoff_limit(job)):
        changed["backoffLimit"] = backoff_limit
    if batch.active_deadline_seconds != (limit := deadline_seconds(job, child=child)):
        changed["activeDeadlineSeconds"] = limit
    return (PatchJob(spec=changed),) if changed else ()


def _why_not_started(waiting: Sequence[Pod], *, leaving: bool) -> tuple[str, str]:
    """Reason and sentence of the first worker that has not started; never empty."""
    if not waiting:
        if leaving:
            return "Evaluating", "Waiting for pods to end that were told to"
        return "Evaluating", UNMADE
    pod = min(waiting, key=worker_of)
    if pod.spec.node_name:
        return _why_not_running(pod)
    scheduled = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    if scheduled is None or scheduled.status != "False":
        return "Evaluating", "Waiting for kube-scheduler to look at the pod"
    return _why_unscheduled(scheduled)


def _why_unscheduled(scheduled: Condition) -> tuple[str, str]:
    if scheduled.reason == "SchedulerError":
        return "Evaluating", f"kube-scheduler could not decide: {scheduled.message}"
    return "Resources", f"kube-scheduler: {scheduled.message or 'no node takes the pod'}"


def _why_not_running(pod: Pod) -> tuple[str, str]:
    """A pod that has a node and does not run: what its kubelet says, in kubelet's own word."""
    for container in pod.status.container_statuses:
        if container.state.waiting is not None and container.state.waiting.reason:
            waiting = container.state.waiting
            told = waiting.message or "the container has not started"
            return waiting.reason, f"{pod.spec.node_name}: {told}"
    return "ContainerCreating", f"{pod.spec.node_name} is about to start the container"
