"""What of a GPUJob the operator keeps in memory: one template for all versions of it, none beyond the limits. Pure."""

import msgspec

from dovetail.api.gpujob import NO_TEMPLATE, GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.size_limits import JobLimits, refusal_of_job, without_bulk


class Footprint:
    """Makes jobs small before they are kept, and knows which of them are beyond the limits."""

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        # By UID: the generation that is beyond a limit, and the sentence.
        self._refused: dict[str, tuple[int, str]] = {}

    def lean(self, job: GPUJob, *, known: GPUJob | None) -> GPUJob:
        """The job as it is kept; `known` is what is kept under its name.

        Status updates and the operator's own writes bring the template again: versions that say the same share it.
        """
        if known is None or not _is_same_spec(job.metadata, known.metadata):
            self._judge(job)
        if self.refusal_of(job) is not None:
            return _stripped(job)
        return job if known is None else _sharing(job, known=known)

    def refusal_of(self, job: GPUJob) -> str | None:
        """Why the job is beyond the limits; None for one that is not."""
        generation, refusal = self._refused.get(job.metadata.uid, (0, None))
        return refusal if generation == job.metadata.generation else None

    def forget(self, uid: str) -> None:
        """A job is gone."""
        self._refused.pop(uid, None)

    def _judge(self, job: GPUJob) -> None:
        if self.refusal_of(job) is not None:
            # The watch has stripped it already, and brings it to the state.
            return
        self.forget(job.metadata.uid)
        if (refusal := refusal_of_job(job, limits=self._limits)) is not None:
            self._refused[job.metadata.uid] = (job.metadata.generation, refusal)


def _is_same_spec(new: ObjectMeta, known: ObjectMeta) -> bool:
    # The API server counts the generation up with each change of the spec.
    return (new.uid, new.generation) == (known.uid, known.generation)


def _sharing(job: GPUJob, *, known: GPUJob) -> GPUJob:
    new, old = job.spec.template, known.spec.template
    if new is old or bytes(new.spec) != bytes(old.spec) or new.metadata != old.metadata:
        return job
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=old))


def _stripped(job: GPUJob) -> GPUJob:
    spec = msgspec.structs.replace(job.spec, template=NO_TEMPLATE)
    return msgspec.structs.replace(job, spec=spec, metadata=without_bulk(job.metadata))
