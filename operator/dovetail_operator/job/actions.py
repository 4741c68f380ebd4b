"""What the operator may do about a job. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.api.gpujob import Attempt, GPUJob, Phase, Provisioning, QueuePlace
from dovetail.api.reasons.clause import NOTHING, Sentence

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJob:
    """Create the batch Job, after the Service through which its workers find each other.

    One that `carries_plan` has the plan in its template before the status has it.
    """

    manifest: Manifest
    service: Manifest | None = None
    carries_plan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchJob:
    """Change these fields of the batch Job's spec.

    One that `disrupts` ends the pods for others: only as many as their PodDisruptionBudgets allow.
    """

    spec: Mapping[str, Any]
    disrupts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJob:
    """Delete the batch Job, and with it its pods. `disrupts` is that of `PatchJob`."""

    disrupts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinQueue:
    """Add the GPUJob to a queue of Kueue by a label."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGPUJob:
    """Delete the GPUJob because its retention time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTask:
    """Create the GPUJob of one array task."""

    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """Change these fields and annotations of an array task's GPUJob."""

    task: GPUJob
    spec: Mapping[str, Any]
    annotations: Mapping[str, str | None] = field(default_factory=dict)


Action = CreateJob | PatchJob | DeleteJob | JoinQueue | DeleteGPUJob | CreateTask | ChangeTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The job's phase, why it is in it, and the actions that follow.

    `admitted` sets the Admitted condition; None leaves it unchanged. `ended` is an attempt that has just ended. `queue`
    is the job's place while it waits, and `provisioning` what was requested of a growing pool for it.
    """

    phase: Phase
    why: Sentence = NOTHING
    admitted: bool | None = None
    queue: QueuePlace | None = None
    provisioning: Provisioning | None = None
    ended: Attempt | None = None
    actions: tuple[Action, ...] = field(default=())

    @property
    def reason(self) -> str:
        """The reason for the phase, in one word; empty where nothing keeps the job."""
        return self.why.reason

    @property
    def message(self) -> str:
        """The same in one sentence."""
        return self.why.message


def phase_of_held(job: GPUJob) -> Phase:
    """The phase of a held job: Suspended if it has run, else Held."""
    return "Suspended" if job.status.start_time is not None or job.status.attempts else "Held"
