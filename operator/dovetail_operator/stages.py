"""A stage: what is true of a job and what has to be done about it, in one value."""

from dataclasses import dataclass, field

from dovetail.api.gpujob import Attempt, GPUJob, Phase, QueuePlace
from dovetail_operator.actions import Action


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


def phase_of_held(job: GPUJob) -> Phase:
    """How a job that is held is called: by whether it has run."""
    return "Suspended" if job.status.start_time is not None or job.status.attempts else "Held"
