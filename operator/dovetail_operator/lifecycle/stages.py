"""The stage of a job from its observation: phase, reason, message and actions. Pure.

The queue decides as long as no worker may run. After that the batch Job's pods decide, and at the end the batch Job.
"""

from collections.abc import Sequence
from dataclasses import replace

from dovetail.api.builtin import Condition, Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import end as ends
from dovetail.api.reasons import end as says
from dovetail.api.reasons import start as starts
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.codes import EVALUATING, FAILED
from dovetail.api.reasons.start import TRIED_AGAIN
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import (
    has_ended,
    is_doomed,
    is_going,
    is_guests,
    is_past,
    kept_by,
    true_condition,
    worker_of,
)
from dovetail.jobs.cpu_fallback import BUSY, cpu_in_seconds, due_clause, explain_on_cpu
from dovetail.jobs.obstacle import Obstacle
from dovetail.queue.verdicts import Admitted, Waits, why_of
from dovetail_operator.arrays.task_updates import why_held
from dovetail_operator.job.actions import Action, CreateJob, DeleteJob, PatchJob, Stage, phase_of_held
from dovetail_operator.job.failure_policy import why_final, without_rule
from dovetail_operator.job.missed_deadline import DEADLINE_EXCEEDED, judged
from dovetail_operator.job.observation import Observed, is_used_up, with_time_used
from dovetail_operator.job.plan import may_be_carried, placement_of
from dovetail_operator.job.retries import ended_attempt, retry_of
from dovetail_operator.lifecycle.running import stage_at_work
from dovetail_operator.manifests import rendezvous
from dovetail_operator.manifests.batch_job import build_job, is_of_another_size, is_of_another_template
from dovetail_operator.manifests.planned_template import resumed


def stage_of(seen: Observed) -> Stage:
    """The stage of an unfinished job, and the actions that follow."""
    child = seen.child
    if child is not None and is_past(seen.job, child=child):
        return _going(seen) if is_going(seen.job) else _past(seen, child=child)
    if child is not None and has_ended(child):
        return end_of(seen, child=child)
    if seen.job.spec.cancel:
        actions = () if child is None else (DeleteJob(),)
        return Stage(phase="Cancelled", why=ends.CANCELLED_BY_SPEC(), actions=actions)
    if seen.job.spec.suspend:
        return _held(seen, child=child)
    if child is not None and is_doomed(child):
        return end_of(seen, child=child)
    if is_used_up(seen) and (child is None or child.spec.suspend):
        return _used_up(seen)
    if child is None or child.spec.suspend:
        return _going(seen) if is_going(seen.job) else _waiting(seen, child=child)
    return stage_at_work(seen, child=child)


def _going(seen: Observed) -> Stage:
    """The stage of a job that is being deleted and of which nothing runs."""
    why = starts.BEING_DELETED(finalizers=", ".join(kept_by(seen.job)))
    return Stage(phase="Queued", why=why, admitted=False)


def _past(seen: Observed, *, child: Job) -> Stage:
    """The stage after an attempt: nothing follows before its batch Job is deleted."""
    actions = () if child.metadata.deletion_timestamp is not None else (DeleteJob(),)
    if seen.job.spec.cancel:
        return Stage(phase="Cancelled", why=ends.CANCELLED_BY_SPEC(), actions=actions)
    if seen.job.spec.suspend:
        return replace(_held(seen, child=None), actions=actions)
    return Stage(phase="Queued", why=starts.EARLIER_JOB(), admitted=False, actions=actions)


def _used_up(seen: Observed) -> Stage:
    clear: tuple[Action, ...] = () if seen.child is None else (DeleteJob(),)
    limit = seen.job.spec.maximum_execution_time_seconds
    return Stage(phase="TimedOut", why=ends.TOTAL_TIME_USED(seconds=limit or 0), actions=clear)


def _held(seen: Observed, *, child: Job | None) -> Stage:
    suspend: tuple[Action, ...] = ()
    if child is not None and not child.spec.suspend:
        suspend = (PatchJob(spec={"suspend": True}),)
    why = why_held(seen.job) or starts.HELD_BY_SPEC()
    if is_guests(seen.job):
        # The message is shown on the guest too, whose own suspension only the operator ends.
        why = starts.HELD_GUEST(job=seen.job.metadata.name)
    return Stage(phase=phase_of_held(seen.job), why=why, admitted=False, actions=suspend)


def _waiting(seen: Observed, *, child: Job | None) -> Stage:
    """The stage of a job of which no worker may run yet, as the queue decides."""
    if seen.obstacle is not None:
        return _obstructed(seen.obstacle, job=seen.job, child=child)
    verdict = seen.verdict
    if isinstance(verdict, Waits):
        return Stage(
            phase="Queued",
            why=why_of(verdict) + _until_on_cpu(seen, waits=verdict),
            admitted=False,
            queue=verdict.queue,
            provisioning=verdict.provisioning,
        )
    if not isinstance(verdict, Admitted) or seen.number is None or seen.ask is None:
        return Stage(
            phase="Queued",
            why=starts.NEXT_CYCLE(),
            admitted=False,
            # A new operator continues the request.
            provisioning=seen.job.status.provisioning if verdict is None else None,
        )
    return _starting(seen, child=child, verdict=verdict, number=seen.number, ask=seen.ask)


def _obstructed(obstacle: Obstacle, *, job: GPUJob, child: Job | None) -> Stage:
    if obstacle.reason == "DependencyFailed" and job.spec.on_dependency_failure == "Cancel":
        clear: tuple[Action, ...] = () if child is None else (DeleteJob(),)
        return Stage(phase="Cancelled", why=obstacle, actions=clear)
    return Stage(phase="Queued", why=obstacle, admitted=False)


def _starting(seen: Observed, *, child: Job | None, verdict: Admitted, number: int, ask: Ask) -> Stage:
    """The stage of an admitted job: its batch Job is created, resumed or, if it does not fit the plan, recreated."""
    if child is not None and (changed := _restart_reason(child, seen=seen, verdict=verdict)) is not None:
        return Stage(phase="Starting", why=changed, admitted=True, actions=(DeleteJob(),))
    if is_guests(seen.job):
        start_guest = (PatchJob(spec={"suspend": False}),)
        return Stage(phase="Starting", why=starts.PODS_UNMADE(), admitted=True, actions=start_guest)
    job, placement = with_time_used(seen), placement_of(seen.job, verdict=verdict)
    carries_plan = child is None and seen.plan_may_follow and may_be_carried(placement, job=seen.job)
    manifest = build_job(
        job,
        ask=ask,
        number=number,
        memory=None if verdict.on_cpu else seen.memory,
        placement=placement,
        carries_plan=carries_plan,
        cluster_nodes=seen.cluster_nodes,
        on_cpu=verdict.on_cpu,
    )
    limit = {"activeDeadlineSeconds": manifest["spec"].get("activeDeadlineSeconds")}
    start: Action = PatchJob(spec=resumed(manifest) | limit)
    if child is None:
        service = rendezvous.service_of(job) if rendezvous.meets(job) else None
        start = CreateJob(manifest=manifest, service=service, carries_plan=carries_plan)
    why = explain_on_cpu(verdict.on_cpu) if verdict.on_cpu else starts.PODS_UNMADE()
    return Stage(phase="Starting", why=why.with_reason(EVALUATING.code), admitted=True, actions=(start,))


def _until_on_cpu(seen: Observed, *, waits: Waits) -> Sentence:
    left = cpu_in_seconds(seen.job, after_seconds=seen.cpu_after_seconds, now=seen.now)
    return due_clause(left, now=seen.now) if waits.reason in BUSY else NOTHING


def _is_of_another_kind(child: Job, *, seen: Observed, verdict: Admitted) -> bool:
    """Whether the plan has another resource or size than the suspended batch Job, or is without its GPUs."""
    other_size = child.spec.completions not in {None, seen.job.spec.workers}
    if verdict.ask is None or seen.ask is None:
        return other_size
    with_gpus = (verdict.ask.gpu is None) == (seen.ask.gpu is None)
    return other_size or not with_gpus or verdict.ask.resource != seen.ask.resource


def _restart_reason(child: Job, *, seen: Observed, verdict: Admitted) -> Sentence | None:
    """Why the suspended batch Job cannot be resumed as it is; None if it can."""
    if _is_of_another_kind(child, seen=seen, verdict=verdict):
        return starts.ANOTHER_WAY()
    if seen.ask is not None and is_of_another_size(child, job=seen.job, ask=seen.ask):
        return starts.RIGHT_SIZED(request=str(seen.ask.gpu))
    return starts.OTHER_TEMPLATE() if is_of_another_template(child, job=seen.job) else None


def end_of(seen: Observed, *, child: Job) -> Stage:
    """The stage of a job whose batch Job has ended: its final phase, or another attempt."""
    if true_condition(child, "Complete"):
        return Stage(phase="Succeeded", admitted=True)
    failed = true_condition(child, "Failed", "FailureTarget")
    assert failed is not None, "a Job that has ended is Complete or Failed, or about to be"
    failed = judged(failed, seen=seen, child=child)
    late = failed.reason == DEADLINE_EXCEEDED
    how = _over_limit(seen) if late else _how_it_failed(seen.pods) or _without_pod(seen, child=child, failed=failed)
    if (retry := retry_of(seen, child=child, failed=failed, how=how)) is not None:
        ended = ended_attempt(seen, child=child, why=retry)
        return Stage(phase="Queued", why=TRIED_AGAIN(why=retry.message), ended=ended)
    how += why_final(seen.job, failed=failed)
    if seen.job.spec.backoff_limit and seen.job.status.attempts:
        how += says.ATTEMPT(attempt=seen.job.status.attempt, retries=seen.job.status.retries)
    why = how.with_reason(failed.reason or FAILED.code)
    return Stage(phase="TimedOut" if late else "Failed", why=why, admitted=True)


def _over_limit(seen: Observed) -> Sentence:
    spec = seen.job.spec
    if spec.reservation is not None:
        return says.LEASE_ENDED()
    if is_used_up(seen):
        return says.TOTAL_TIME_USED(seconds=spec.maximum_execution_time_seconds or 0)
    if spec.active_deadline_seconds is None:
        return says.OVER_LIMIT_OF_JOB()
    return says.OVER_LIMIT(seconds=spec.active_deadline_seconds)


def _without_pod(seen: Observed, *, child: Job, failed: Condition) -> Sentence:
    """The Job controller's message, with a note if the failed pod no longer exists."""
    said = says.JOB_CONTROLLER_SAYS(message=without_rule(failed.message))
    if failed.reason != "BackoffLimitExceeded" or not child.status.failed:
        return said
    if any(pod.status.phase == "Failed" for pod in seen.pods):
        return said
    return said + says.FAILED_POD_GONE()


def _how_it_failed(pods: Sequence[Pod]) -> Sentence | None:
    """The last failure of a worker in one sentence; None if no pod shows one.

    When one pod of a gang fails, the Job controller deletes the others, and kubelet reports their end as a failure too.
    Pods without a deletion timestamp therefore come first.
    """
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    for pod in sorted(failed, key=_ended_by_itself_and_last, reverse=True):
        worker, node = worker_of(pod), pod.spec.node_name
        for container in pod.status.container_statuses:
            end = container.state.terminated
            if end is not None and end.exit_code != 0:
                found = _container_failed(pod, container=container.name, exit_code=end.exit_code)
                return found if end.reason in {"", "Error"} else found + says.IN_WORDS(word=end.reason)
        if pod.status.reason or pod.status.message:
            return says.WORKER_FAILED(worker=worker, node=node, message=pod.status.message or pod.status.reason)
    return None


def _container_failed(pod: Pod, *, container: str, exit_code: int) -> Sentence:
    """The end of a container, which has a name only among several."""
    worker, node = worker_of(pod), pod.spec.node_name
    if len(pod.status.container_statuses) == 1:
        return says.PROGRAM_FAILED(worker=worker, node=node, exit_code=exit_code)
    return says.CONTAINER_FAILED(worker=worker, node=node, container=container, exit_code=exit_code)


def _ended_by_itself_and_last(pod: Pod) -> tuple[bool, str]:
    return pod.metadata.deletion_timestamp is None, pod.metadata.creation_timestamp
