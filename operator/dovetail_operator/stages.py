"""Where a job is: phase, reason and sentence out of what is observed, and what has to be done. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.api.gpujob import Attempt, Phase, QueuePlace
from dovetail.kube.objects import Condition, Job, Pod
from dovetail.queue.admission import Admitted, Waits
from dovetail_operator import attempts, badcards, overuse, rendezvous
from dovetail_operator.actions import Action, CreateJob, DeleteJob, PatchJob
from dovetail_operator.arraychanges import why_held
from dovetail_operator.cpufallback import falls_back, fell_back, on_cpu
from dovetail_operator.observed import Observed, has_ended, is_past, true_condition, worker_of
from dovetail_operator.plans import placement_of, resumed
from dovetail_operator.workload import build_job, is_of_another_template

_ENDED_PODS: Final = frozenset({"Succeeded", "Failed"})
# Said when the batch Job is about to be made, and as long as it has no pods: one sentence is one write of the status.
_UNMADE: Final = "Waiting for the Job controller to create the pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where the job is. `admitted` None leaves the condition as it is; `ended` is an attempt that is over just now."""

    phase: Phase
    reason: str = ""
    message: str = ""
    admitted: bool | None = None
    queue: QueuePlace | None = None
    ended: Attempt | None = None
    actions: tuple[Action, ...] = field(default=())


def stage_of(seen: Observed) -> Stage:
    """Where an unfinished job is now, and what has to be done about it."""
    child = seen.child
    if child is not None and is_past(seen.job, child):
        return _past(seen, child)
    if child is not None and has_ended(child):
        return _ended(seen, child)
    if seen.job.spec.cancel:
        actions = () if child is None else (DeleteJob(),)
        return Stage(phase="Cancelled", reason="Cancelled", message="Cancelled by spec.cancel", actions=actions)
    if seen.job.spec.suspend:
        return _held(seen, child)
    if attempts.is_used_up(seen) and (child is None or child.spec.suspend):
        return _used_up(seen)
    if child is None or child.spec.suspend:
        return _waiting(seen, child)
    return _active(seen, child)


def _past(seen: Observed, child: Job) -> Stage:
    """An attempt is over, and nothing follows before its batch Job is gone."""
    actions = () if child.metadata.deletion_timestamp is not None else (DeleteJob(),)
    if seen.job.spec.cancel:
        return Stage(phase="Cancelled", reason="Cancelled", message="Cancelled by spec.cancel", actions=actions)
    message = "Waiting for the Job of the run before to go"
    return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=actions)


def _used_up(seen: Observed) -> Stage:
    clear: tuple[Action, ...] = () if seen.child is None else (DeleteJob(),)
    limit = seen.job.spec.maximum_execution_time_seconds
    message = f"Ran longer than its limit of {limit} s in all (spec.maximumExecutionTimeSeconds)"
    return Stage(phase="TimedOut", reason="DeadlineExceeded", message=message, actions=clear)


def _held(seen: Observed, child: Job | None) -> Stage:
    suspend: tuple[Action, ...] = ()
    if child is not None and not child.spec.suspend:
        suspend = (PatchJob(spec={"suspend": True}),)
    message = why_held(seen.job) or "Held by spec.suspend: set it to false to let the job go on"
    ran = seen.job.status.start_time is not None or seen.job.status.attempts
    phase: Phase = "Suspended" if ran else "Held"
    return Stage(phase=phase, reason="Held", message=message, admitted=False, actions=suspend)


def _waiting(seen: Observed, child: Job | None) -> Stage:
    """No worker may run yet: the queue has the word."""
    if seen.obstacle is not None:
        if seen.obstacle.reason == "DependencyFailed" and seen.job.spec.on_dependency_failure == "Cancel":
            clear: tuple[Action, ...] = () if child is None else (DeleteJob(),)
            return Stage(phase="Cancelled", reason=seen.obstacle.reason, message=seen.obstacle.message, actions=clear)
        return Stage(phase="Queued", reason=seen.obstacle.reason, message=seen.obstacle.message, admitted=False)
    verdict = seen.verdict
    if falls_back(seen.job, verdict):
        return _on_cpu(seen, child)
    if isinstance(verdict, Waits):
        return Stage(
            phase="Queued", reason=verdict.reason, message=verdict.message, admitted=False, queue=verdict.queue
        )
    if not isinstance(verdict, Admitted) or seen.number is None or seen.ask is None:
        return Stage(phase="Queued", reason="Evaluating", message="Waiting for the queue's next look", admitted=False)
    if child is not None and (why := _why_anew(child, seen, verdict)):
        message = f"{why}: its Job is made anew"
        return Stage(phase="Starting", reason="Evaluating", message=message, admitted=True, actions=(DeleteJob(),))
    placement = placement_of(seen.job, verdict)
    job = attempts.with_time_used(seen)
    manifest = build_job(job, ask=seen.ask, number=seen.number, memory=seen.memory, placement=placement)
    limit = {"activeDeadlineSeconds": manifest["spec"].get("activeDeadlineSeconds")}
    start: Action = PatchJob(spec=resumed(manifest) | limit)
    if child is None:
        start = CreateJob(manifest=manifest, service=rendezvous.service_of(job) if rendezvous.meets(job) else None)
    return Stage(
        phase="Starting",
        reason="Evaluating",
        message=_UNMADE,
        admitted=True,
        actions=(start,),
    )


def _on_cpu(seen: Observed, child: Job | None) -> Stage:
    """No GPU here could ever serve the job, and it would rather run without."""
    assert isinstance(seen.verdict, Waits), "falls back on what the queue has said"
    message = f"Runs on the CPU (onNoGPU): {seen.verdict.message}"
    if child is not None:
        return Stage(phase="Starting", reason="Evaluating", message=message, admitted=True, actions=(DeleteJob(),))
    if seen.number is None or seen.ask is None:
        return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False)
    job = attempts.with_time_used(seen)
    manifest = build_job(job, ask=on_cpu(seen.ask), number=seen.number)
    create = CreateJob(manifest=manifest, service=rendezvous.service_of(job) if rendezvous.meets(job) else None)
    return Stage(phase="Starting", reason="Evaluating", message=message, admitted=True, actions=(create,))


def _is_of_another_kind(child: Job, seen: Observed, verdict: Admitted) -> bool:
    """Whether the queue has found room in another way, or for more or fewer, than the suspended batch Job asks it."""
    asked = seen.ask.resource if seen.ask is not None else ""
    other_size = child.spec.completions not in {None, seen.job.spec.workers}
    return other_size or (verdict.ask is not None and verdict.ask.resource != asked)


def _why_anew(child: Job, seen: Observed, verdict: Admitted) -> str:
    """Why the suspended batch Job cannot just go on; empty where it can."""
    if _is_of_another_kind(child, seen, verdict):
        return "Admitted in another way than before"
    return "Its template was changed" if is_of_another_template(child, job=seen.job) else ""


def _active(seen: Observed, child: Job) -> Stage:
    """The batch Job is at work: its pods say whether the job is starting or running."""
    adjust = _adjustments(seen, child)
    ending = true_condition(child, "SuccessCriteriaMet", "FailureTarget")
    if ending is not None:
        message = "The job is over: waiting for its last pods to end"
        return Stage(phase="Running", message=message, admitted=True, actions=adjust)
    if seen.overtaken:
        # All of it or nothing: what is bound goes back, and the whole job is planned anew.
        message = f"Is planned anew: {seen.overtaken}"
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=(suspend,))
    if why := overuse.ending(seen.overuses):
        return Stage(phase="Failed", reason=overuse.REASON, message=why, admitted=True, actions=(DeleteJob(),))
    if seen.bad_cards and seen.leaves_bad_cards and seen.job.spec.reservation is None:
        message = f"Is started anew elsewhere: {badcards.told(seen.bad_cards)}"
        suspend = PatchJob(spec={"suspend": True})
        return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=(suspend,))
    pods = [pod for pod in seen.pods if pod.metadata.deletion_timestamp is None]
    waiting = [pod for pod in pods if pod.status.phase not in {"Running", *_ENDED_PODS}]
    started = {worker_of(pod) for pod in pods if pod.status.phase == "Running"}
    again = {worker_of(pod) for pod in waiting}
    ended = {worker_of(pod) for pod in pods if pod.status.phase in _ENDED_PODS} - again
    reason, message = _why_not_started(waiting, leaving=len(pods) < len(seen.pods))
    if not started and (waiting or not ended):
        return Stage(phase="Starting", reason=reason, message=message, admitted=True, actions=adjust)
    absent = seen.job.spec.workers - len(started | ended) - _succeeded_before(child, ended)
    if absent <= 0:
        return Stage(phase="Running", message=_how_it_runs(seen, child), admitted=True, actions=adjust)
    message = f"{absent} of {seen.job.spec.workers} workers wait: {message}"
    return Stage(phase="Running", reason="GangWaiting", message=message, admitted=True, actions=adjust)


def _how_it_runs(seen: Observed, child: Job) -> str:
    """What is out of the ordinary about a job all of whose workers run; mostly nothing."""
    if fell_back(child):
        return "Runs on the CPU: no GPU here could ever serve it (onNoGPU)"
    asked, workers = seen.asked_workers, seen.job.spec.workers
    if asked is None or workers >= asked:
        return ""
    return (
        f"Runs with {workers} of {asked} workers, as many as there was room for: it may take more when it starts anew"
    )


def _succeeded_before(child: Job, ended: set[int]) -> int:
    return max(0, child.status.succeeded - len(ended))


def _adjustments(seen: Observed, child: Job) -> tuple[Action, ...]:
    """Limits that may change while the job runs, where they differ from the batch Job's."""
    job, batch = seen.job, child.spec
    changed: dict[str, Any] = {}
    if batch.backoff_limit != (backoff_limit := attempts.inner_backoff_limit(job)):
        changed["backoffLimit"] = backoff_limit
    if batch.active_deadline_seconds != (limit := attempts.deadline_seconds(job, child=child)):
        changed["activeDeadlineSeconds"] = limit
    return (PatchJob(spec=changed),) if changed else ()


def _why_not_started(waiting: Sequence[Pod], *, leaving: bool) -> tuple[str, str]:
    """Reason and sentence of the first worker that has not started; never empty."""
    if not waiting:
        if leaving:
            return "Evaluating", "Waiting for pods of the run before to end"
        return "Evaluating", _UNMADE
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


def _ended(seen: Observed, child: Job) -> Stage:
    if true_condition(child, "Complete"):
        return Stage(phase="Succeeded", admitted=True)
    failed = true_condition(child, "Failed")
    assert failed is not None, "a Job that has ended is Complete or Failed"
    late = failed.reason == "DeadlineExceeded"
    message = _over_limit(seen) if late else _how_it_failed(seen.pods) or _no_pod_tells(seen, child, failed)
    if (why := attempts.again(seen, child, failed, how=message)) is not None:
        ended = attempts.ended_attempt(seen, child, why)
        return Stage(phase="Queued", reason="Evaluating", message=f"Is tried again: {why.message}", ended=ended)
    message += attempts.why_final(seen.job, failed)
    if seen.job.spec.backoff_limit and seen.job.status.attempts:
        retries = seen.job.status.retries
        used = f"{retries} {'retry' if retries == 1 else 'retries'} used"
        message = f"{message} (attempt {seen.job.status.attempt}, {used})"
    return Stage(
        phase="TimedOut" if late else "Failed", reason=failed.reason or "Failed", message=message, admitted=True
    )


def _over_limit(seen: Observed) -> str:
    if seen.job.spec.reservation is not None:
        return "Its lease has ended: spec.reservation.renewTime was not renewed in time"
    if attempts.is_used_up(seen):
        limit = seen.job.spec.maximum_execution_time_seconds
        return f"Ran longer than its limit of {limit} s in all (spec.maximumExecutionTimeSeconds)"
    return f"Ran longer than its limit of {seen.job.spec.active_deadline_seconds} s (spec.activeDeadlineSeconds)"


def _no_pod_tells(seen: Observed, child: Job, failed: Condition) -> str:
    """What the Job controller says; and that a pod is missing, where one failed that is not there any more."""
    said = attempts.without_rule(failed.message)
    if failed.reason != "BackoffLimitExceeded" or not child.status.failed:
        return said
    if any(pod.status.phase == "Failed" for pod in seen.pods):
        return said
    return f"{said}: the pod of the worker that failed is there no more (was it deleted?)"


def _how_it_failed(pods: Sequence[Pod]) -> str:
    """The last failure of a worker in one sentence; empty when no pod tells."""
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    for pod in sorted(failed, key=lambda pod: pod.metadata.creation_timestamp, reverse=True):
        where = f"Worker {worker_of(pod)} failed on {pod.spec.node_name}"
        for container in pod.status.container_statuses:
            end = container.state.terminated
            if end is not None and end.exit_code != 0:
                said = f" ({end.reason})" if end.reason not in {"", "Error"} else ""
                return f"{where}: container {container.name} ended with exit code {end.exit_code}{said}"
        if pod.status.reason or pod.status.message:
            return f"{where}: {pod.status.message or pod.status.reason}"
    return ""
