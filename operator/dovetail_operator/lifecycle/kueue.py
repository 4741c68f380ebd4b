"""Jobs that Kueue admits instead of our queue: the GPUJob names a Kueue queue by its label.

Pure.

Our queue ignores these jobs. The operator creates the batch Job suspended, with Kueue's labels. Kueue resumes it when
Kueue's quota has room, and may suspend it again. Our scheduler still chooses the devices on the node.
"""

from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import has_ended, is_doomed, is_external, is_past
from dovetail_operator.job.actions import CreateJob, DeleteJob, JoinQueue, Stage, phase_of_held
from dovetail_operator.job.observation import Observed, bound_pods, is_used_up, with_time_used
from dovetail_operator.manifests import rendezvous
from dovetail_operator.manifests.batch_job import build_job, is_of_another_template

# Obstacles that keep a job out of Kueue's queue. Others, such as pods that are about to end, pass by themselves.
_OUT_OF_QUEUE: Final = frozenset({"BeginTime", "Dependency", "DependencyFailed"})


def stage_of(seen: Observed) -> Stage | None:
    """The stage of a Kueue job that does not run; None for any other job or state.

    A job without a batch Job is one that names a queue of Kueue.
    """
    job, child = seen.job, seen.child
    if job.spec.cancel:
        return None
    if child is None:
        return _made(seen)
    if has_ended(child) or is_doomed(child) or is_past(job, child=child):
        return None
    if job.spec.suspend and (is_external(job) or _queue_of(child)):
        # Kueue would resume a batch Job that only we suspend, so the batch Job is deleted.
        why = says.HELD_OUT_OF_KUEUE()
        return Stage(phase=phase_of_held(job), why=why, admitted=False, actions=(DeleteJob(),))
    if _was_taken(child) and (child.spec.suspend or not bound_pods(seen.pods)):
        return _goes_along(job, child=child)
    return _waiting(seen, child=child) if child.spec.suspend and not is_used_up(seen) else None


def _waiting(seen: Observed, *, child: Job) -> Stage | None:
    job = seen.job
    if any(child.metadata.labels.get(name, "") != value for name, value in _wanted(job).items()):
        if is_external(job):
            return _out(says.RECREATED_FOR_KUEUE(queue=_queue_of(job)))
        return _out(says.RECREATED_FOR_DOVETAIL())
    if not is_external(job) or _is_lost(seen):
        return None
    if seen.obstacle is not None and seen.obstacle.reason in _OUT_OF_QUEUE:
        return _out(seen.obstacle)
    if is_of_another_template(child, job=job):
        return _out(says.OTHER_TEMPLATE())
    return Stage(phase="Queued", why=_waits(job, why=seen.kueue), admitted=False)


def _out(why: Sentence) -> Stage:
    """The stage of a job that must leave Kueue's queue: its suspended batch Job is deleted."""
    return Stage(phase="Queued", why=why, admitted=False, actions=(DeleteJob(),))


def _is_lost(seen: Observed) -> bool:
    """Whether a dependency has failed and the job is to be cancelled for it."""
    failed = seen.obstacle is not None and seen.obstacle.reason == "DependencyFailed"
    return failed and seen.job.spec.on_dependency_failure == "Cancel"


def _wanted(job: GPUJob) -> dict[str, str]:
    """The Kueue labels of the batch Job; it must not have a label with an empty value."""
    return _kueues(job.metadata.labels) if is_external(job) else {names.KUEUE_QUEUE: ""}


def _queue_of(found: GPUJob | Job) -> str:
    return found.metadata.labels.get(names.KUEUE_QUEUE, "")


def _was_taken(child: Job) -> bool:
    """Whether Kueue took the batch Job by itself, as in a namespace with a default queue."""
    return bool(_queue_of(child)) and names.HANDED_TO not in child.metadata.annotations


def _goes_along(job: GPUJob, *, child: Job) -> Stage:
    """Move the GPUJob to the Kueue queue that took its batch Job.

    Our plan would not hold when Kueue resumes the batch Job, so the batch Job is created again.
    """
    queue = _queue_of(child)
    joins = () if is_external(job) else (JoinQueue(queue=queue),)
    why = says.KUEUE_TOOK_IT(queue=queue)
    return Stage(phase="Queued", why=why, admitted=False, actions=(*joins, DeleteJob()))


def _made(seen: Observed) -> Stage | None:
    if seen.job.spec.suspend or seen.obstacle is not None or is_used_up(seen):
        return None
    if seen.ask is None or seen.number is None:
        return None
    job = with_time_used(seen)
    service = rendezvous.service_of(job) if rendezvous.meets(job) else None
    create = CreateJob(manifest=_suspended(job, ask=seen.ask, number=seen.number), service=service)
    return Stage(phase="Queued", why=_waits(job), admitted=False, actions=(create,))


def _suspended(job: GPUJob, *, ask: Ask, number: int) -> dict[str, Any]:
    manifest = build_job(job, ask=ask, number=number)
    metadata = manifest["metadata"]
    labels = {**_kueues(job.metadata.labels), **metadata["labels"]}
    annotations = {**_kueues(job.metadata.annotations), **metadata["annotations"], names.HANDED_TO: _queue_of(job)}
    return {
        **manifest,
        "metadata": {**metadata, "labels": labels, "annotations": annotations},
        "spec": {**manifest["spec"], "suspend": True},
    }


def _kueues(said: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in said.items() if name.startswith(names.KUEUE_PREFIX)}


def _waits(job: GPUJob, *, why: str = "") -> Sentence:
    return says.KUEUE_HOLDS(queue=_queue_of(job)) + (says.KUEUE_SAYS(message=why) if why else NOTHING)
