"""Reduces the memory that GPUJobs take: versions share a template, oversized jobs have none.

Pure.
"""

import msgspec

from dovetail.api.gpujob import NO_TEMPLATE, GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.size_limits import JobLimits, refusal_of_job, without_bulk


class Footprint:
    """Reduces jobs before they are stored, and knows which exceed the limits."""

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        # By UID: the generation that exceeds a limit, and the message.
        self._refused: dict[str, tuple[int, str]] = {}

    def lean(self, job: GPUJob, *, known: GPUJob | None) -> GPUJob:
        """The job in its stored form. `known` is the version that is stored under its name.

        Each status update brings the template again: versions with an equal template share one copy.
        """
        if known is None or not _is_same_spec(job.metadata, known=known.metadata):
            self._judge(job)
        if self.refusal_of(job) is not None:
            return _stripped(job)
        return job if known is None else _sharing(job, known=known)

    def refusal_of(self, job: GPUJob) -> str | None:
        """Why this generation of the job exceeds the limits; None if it does not."""
        generation, refusal = self._refused.get(job.metadata.uid, (0, None))
        return refusal if generation == job.metadata.generation else None

    def forget(self, uid: str) -> None:
        """Drop a deleted job."""
        self._refused.pop(uid, None)

    def _judge(self, job: GPUJob) -> None:
        if self.refusal_of(job) is not None:
            # The watch has stripped the job already before the store receives it.
            return
        self.forget(job.metadata.uid)
        if (refusal := refusal_of_job(job, limits=self._limits)) is not None:
            self._refused[job.metadata.uid] = (job.metadata.generation, refusal)


def _is_same_spec(new: ObjectMeta, *, known: ObjectMeta) -> bool:
    # The API server increments the generation with each change of the spec.
    return (new.uid, new.generation) == (known.uid, known.generation)


def _sharing(job: GPUJob, *, known: GPUJob) -> GPUJob:
    new, old = job.spec.template, known.spec.template
    if new is old or bytes(new.spec) != bytes(old.spec) or new.metadata != old.metadata:
        return job
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=old))


def _stripped(job: GPUJob) -> GPUJob:
    spec = msgspec.structs.replace(job.spec, template=NO_TEMPLATE)
    return msgspec.structs.replace(job, spec=spec, metadata=without_bulk(job.metadata))
