"""The number of workers with which a job starts or runs. Pure."""

import msgspec

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import expected_workers, is_guests
from dovetail.queue.verdicts import Admitted, Verdict


def sized(job: GPUJob, *, child: Job | None, verdict: Verdict | None) -> GPUJob:
    """The job with its actual number of workers: an elastic job may start with fewer, a guest may ask for fewer."""
    if is_guests(job):
        workers = expected_workers(job, child=child)
        return job if workers == job.spec.workers else _with_workers(job, workers=workers)
    if job.spec.min_workers is None:
        return job
    workers = job.spec.workers
    if child is not None and not child.spec.suspend:
        workers = child.spec.completions or workers
    elif isinstance(verdict, Admitted) and verdict.claims:
        workers = len(verdict.claims)
    return _with_workers(job, workers=workers)


def _with_workers(job: GPUJob, *, workers: int) -> GPUJob:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, workers=workers))
