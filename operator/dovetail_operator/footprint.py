"""What of a GPUJob the operator keeps in memory: one template for all versions of it, none beyond the limits. Pure."""

import msgspec

from dovetail.api.gpujob import NO_TEMPLATE, GPUJob
from dovetail.joblimits import JobLimits, refusal_of_job, without_bulk


class Footprint:
    """Makes jobs small before they are kept, and knows which of them are beyond the limits."""

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        # By UID: the generation that is beyond a limit, and the sentence.
        self._refused: dict[str, tuple[int, str]] = {}

    def lean(self, job: GPUJob, *, known: GPUJob | None) -> GPUJob:
        """The job as it is kept; `known` is what is kept under its name.

        Status updates and the operator's own writes bring the spec again: versions of one generation share one.
        """
        uid, generation = job.metadata.uid, job.metadata.generation
        if known is not None and known.metadata.uid == uid and known.metadata.generation == generation:
            job = msgspec.structs.replace(job, spec=known.spec)
        elif self.refusal_of(job) is None:
            self._judge(job)
        return job if self.refusal_of(job) is None else _stripped(job)

    def refusal_of(self, job: GPUJob) -> str | None:
        """Why the job is beyond the limits; None for one that is not."""
        generation, refusal = self._refused.get(job.metadata.uid, (0, None))
        return refusal if generation == job.metadata.generation else None

    def forget(self, uid: str) -> None:
        """A job is gone."""
        self._refused.pop(uid, None)

    def _judge(self, job: GPUJob) -> None:
        self.forget(job.metadata.uid)
        if (refusal := refusal_of_job(job, limits=self._limits)) is not None:
            self._refused[job.metadata.uid] = (job.metadata.generation, refusal)


def _stripped(job: GPUJob) -> GPUJob:
    spec = msgspec.structs.replace(job.spec, template=NO_TEMPLATE)
    return msgspec.structs.replace(job, spec=spec, metadata=without_bulk(job.metadata))
