"""The stage of a job from its observation: phase, reason, message and actions. Pure.

The queue decides as long as no worker may run. After that the batch Job's pods decide, and at the end the batch Job.
"""

from dataclasses import replace

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import has_ended, is_doomed, is_going, is_guests, is_past, kept_by
from dovetail.jobs.cpu_fallback import BUSY, cpu_in_seconds, due_clause, on_cpu_message
from dovetail.jobs.obstacle import Obstacle
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_operator.arrays.task_updates import why_held
from dovetail_operator.job.actions import Action, CreateJob, DeleteJob, PatchJob, Stage, phase_of_held
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.plan import placement_of
from dovetail_operator.job.run_time import is_used_up, with_time_used
from dovetail_operator.lifecycle.finished import end_of
from dovetail_operator.lifecycle.running import UNMADE, stage_at_work
from dovetail_operator.manifests import rendezvous
from dovetail_operator.manifests.batch_job import build_job, is_of_another_template
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
        return Stage(phase="Cancelled", reason="Cancelled", message="Cancelled by spec.cancel", actions=actions)
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
    message = f"Is being deleted: waiting for the finalizer {', '.join(kept_by(seen.job))} to be removed"
    return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False)


def _past(seen: Observed, *, child: Job) -> Stage:
    """The stage after an attempt: nothing follows before its batch Job is deleted."""
    actions = () if child.metadata.deletion_timestamp is not None else (DeleteJob(),)
    if seen.job.spec.cancel:
        return Stage(phase="Cancelled", reason="Cancelled", message="Cancelled by spec.cancel", actions=actions)
    if seen.job.spec.suspend:
        return replace(_held(seen, child=None), actions=actions)
    message = "Waiting for the Job of the run before to go"
    return Stage(phase="Queued", reason="Evaluating", message=message, admitted=False, actions=actions)


def _used_up(seen: Observed) -> Stage:
    clear: tuple[Action, ...] = () if seen.child is None else (DeleteJob(),)
    limit = seen.job.spec.maximum_execution_time_seconds
    message = f"Ran longer than its limit of {limit} s in all (spec.maximumExecutionTimeSeconds)"
    return Stage(phase="TimedOut", reason="DeadlineExceeded", message=message, actions=clear)


def _held(seen: Observed, *, child: Job | None) -> Stage:
    suspend: tuple[Action, ...] = ()
    if child is not None and not child.spec.suspend:
        suspend = (PatchJob(spec={"suspend": True}),)
    message = why_held(seen.job) or "Held by spec.suspend: set it to false to let the job go on"
    if is_guests(seen.job):
        # The message is shown on the guest too, whose own suspension only the operator ends.
        message = f"Held: gjob release {seen.job.metadata.name} lets it go on"
    return Stage(phase=phase_of_held(seen.job), reason="Held", message=message, admitted=False, actions=suspend)


def _waiting(seen: Observed, *, child: Job | None) -> Stage:
    """The stage of a job of which no worker may run yet, as the queue decides."""
    if seen.obstacle is not None:
        return _obstructed(seen.obstacle, job=seen.job, child=child)
    verdict = seen.verdict
    if isinstance(verdict, Waits):
        message = verdict.message + _until_on_cpu(seen, waits=verdict)
        return Stage(
            phase="Queued",
            reason=verdict.reason,
            message=message,
            admitted=False,
            queue=verdict.queue,
            provisioning=verdict.provisioning,
        )
    if not isinstance(verdict, Admitted) or seen.number is None or seen.ask is None:
        return Stage(
            phase="Queued",
            reason="Evaluating",
            message="Waiting for the next scheduling cycle",
            admitted=False,
            # A new operator continues the request.
            provisioning=seen.job.status.provisioning if verdict is None else None,
        )
    return _starting(seen, child=child, verdict=verdict, number=seen.number, ask=seen.ask)


def _obstructed(obstacle: Obstacle, *, job: GPUJob, child: Job | None) -> Stage:
    if obstacle.reason == "DependencyFailed" and job.spec.on_dependency_failure == "Cancel":
        clear: tuple[Action, ...] = () if child is None else (DeleteJob(),)
        return Stage(phase="Cancelled", reason=obstacle.reason, message=obstacle.message, actions=clear)
    return Stage(phase="Queued", reason=obstacle.reason, message=obstacle.message, admitted=False)


def _starting(seen: Observed, *, child: Job | None, verdict: Admitted, number: int, ask: Ask) -> Stage:
    """The stage of an admitted job: its batch Job is created, resumed or, if it does not fit the plan, recreated."""
    if child is not None and (why := _restart_reason(child, seen=seen, verdict=verdict)):
        message = f"{why}: its Job is recreated"
        return Stage(phase="Starting", reason="Evaluating", message=message, admitted=True, actions=(DeleteJob(),))
    if is_guests(seen.job):
        start_guest = (PatchJob(spec={"suspend": False}),)
        return Stage(phase="Starting", reason="Evaluating", message=UNMADE, admitted=True, actions=start_guest)
    job = with_time_used(seen)
    manifest = build_job(
        job,
        ask=ask,
        number=number,
        memory=None if verdict.on_cpu else seen.memory,
        placement=placement_of(seen.job, verdict=verdict),
        cluster_nodes=seen.cluster_nodes,
        on_cpu=verdict.on_cpu,
    )
    limit = {"activeDeadlineSeconds": manifest["spec"].get("activeDeadlineSeconds")}
    start: Action = PatchJob(spec=resumed(manifest) | limit)
    if child is None:
        start = CreateJob(manifest=manifest, service=rendezvous.service_of(job) if rendezvous.meets(job) else None)
    message = on_cpu_message(verdict.on_cpu) if verdict.on_cpu else UNMADE
    return Stage(phase="Starting", reason="Evaluating", message=message, admitted=True, actions=(start,))


def _until_on_cpu(seen: Observed, *, waits: Waits) -> str:
    left = cpu_in_seconds(seen.job, after_seconds=seen.cpu_after_seconds, now=seen.now)
    return due_clause(left, now=seen.now) if waits.reason in BUSY else ""


def _is_of_another_kind(child: Job, *, seen: Observed, verdict: Admitted) -> bool:
    """Whether the plan has another resource or size than the suspended batch Job, or is without its GPUs."""
    other_size = child.spec.completions not in {None, seen.job.spec.workers}
    if verdict.ask is None or seen.ask is None:
        return other_size
    with_gpus = (verdict.ask.gpu is None) == (seen.ask.gpu is None)
    return other_size or not with_gpus or verdict.ask.resource != seen.ask.resource


def _restart_reason(child: Job, *, seen: Observed, verdict: Admitted) -> str:
    """Why the suspended batch Job cannot be resumed as it is; empty if it can."""
    if _is_of_another_kind(child, seen=seen, verdict=verdict):
        return "Admitted in another way than before"
    return "Its template was changed" if is_of_another_template(child, job=seen.job) else ""
