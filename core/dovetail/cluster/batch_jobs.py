"""The batch Job that a GPUJob's status and pods imply, for readers without access to it.

Pure.
"""

from collections.abc import Sequence

from dovetail import names
from dovetail.api.builtin import Job, JobSpec, JobStatus, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.batch_job import is_parent, owner_reference
from dovetail.jobs.runs import workers_of
from dovetail.pods.tenancy import job_of, run_of


def inferred_batch_job(job: GPUJob, *, pods: Sequence[Pod]) -> Job | None:
    """The current batch Job; None for a job that neither starts nor runs.

    `pods` are those of the GPUJob.
    """
    status = job.status
    if status.phase not in {"Starting", "Running"} or is_parent(job):
        return None
    owners = [owner for pod in _newest_first(pods) if (owner := run_of(pod))]
    placement = status.placement
    workers = workers_of(job) - (0 if placement is None else len(placement.released))
    return Job(
        metadata=ObjectMeta(
            name=job.metadata.name,
            namespace=job.metadata.namespace,
            uid=owners[0] if owners else "",
            annotations=_annotations(job),
            owner_references=(owner_reference(job),),
        ),
        spec=JobSpec(parallelism=workers, completions=workers, backoff_limit=job.spec.backoff_limit),
        status=JobStatus(start_time=status.start_time, succeeded=status.workers_succeeded),
    )


def _newest_first(pods: Sequence[Pod]) -> list[Pod]:
    proven = [pod for pod in pods if job_of(pod)]
    return sorted(proven, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)


def _annotations(job: GPUJob) -> dict[str, str]:
    status = job.status
    found = {names.ATTEMPT: str(status.attempt)}
    if status.placement is not None and status.placement.worker.resource:
        found[names.GPU_RESOURCE] = status.placement.worker.resource
    if status.device == "cpu":
        found[names.DEVICE] = status.device
    return found
