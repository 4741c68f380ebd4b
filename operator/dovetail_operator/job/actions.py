"""What the operator may do about a job. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.api.gpujob import Attempt, GPUJob, Phase, QueuePlace

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJob:
    """Create the batch Job, after the Service by which its workers meet."""

    manifest: Manifest
    service: Manifest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchJob:
    """Change these fields of the batch Job's spec."""

    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJob:
    """Delete the batch Job, and by that its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinQueue:
    """Label the GPUJob for a queue of Kueue."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGPUJob:
    """Delete the GPUJob: its time to be kept is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTask:
    """Create the GPUJob of a task of an array."""

    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """Change these fields of the spec, and these annotations, of a task of an array."""

    task: GPUJob
    spec: Mapping[str, Any]
    annotations: Mapping[str, str | None] = field(default_factory=dict)


Action = CreateJob | PatchJob | DeleteJob | JoinQueue | DeleteGPUJob | CreateTask | ChangeTask


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
