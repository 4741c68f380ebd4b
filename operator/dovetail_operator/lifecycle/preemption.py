"""Making way: jobs that are told to, the notice in their pods, and their way back into the queue. Pure.

The steps are: the status says when and for whom; the pods are told by an annotation, which a file in them shows; at
that time, and only where the start of the other is proven anew, the batch Job is suspended. Each step follows from what
the API server has, so that it goes on wherever it was broken off; without a proof the notice is taken back.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJobStatus, Preemption
from dovetail.formats.durations import moment, timestamp
from dovetail_operator.job.actions import PatchJob, Stage
from dovetail_operator.job.observation import Notice, Observed

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyPod:
    """Let the pod say when it is going to be ended; None takes that back."""

    pod: Pod
    at: str | None


def is_due(seen: Observed) -> bool:
    """Whether the job has to make way now: its time has come, and what it was told still stands."""
    made, notice = seen.job.status.preemption, seen.notice
    if made is None or made.at is None or notice is None or notice.by != made.by:
        return False
    return moment(made.at) <= seen.now


def with_preemption(seen: Observed, stage: Stage) -> Stage:
    """The stage of a job that makes way or has made way; any other as it is."""
    made = seen.job.status.preemption
    if made is None:
        return stage
    if stage.phase in {"Starting", "Running"}:
        if is_due(seen):
            suspend = PatchJob(spec={"suspend": True})
            return Stage(phase="Preempted", reason="Priority", message=made.message, admitted=False, actions=(suspend,))
        if made.at is not None and not stage.message and seen.notice is not None:
            return replace(stage, message=f"{made.message}: its pods are ended at {made.at}")
        return stage
    return replace(stage, phase="Preempted") if stage.phase == "Queued" and made.by else stage


def preemption_of(seen: Observed, stage: Stage) -> Preemption | None:
    """What the status is to say of it."""
    before, notice = seen.job.status.preemption, seen.notice
    if stage.phase in {"Starting", "Running"} and notice is not None:
        return _announced(before or Preemption(), notice, now=seen.now)
    if before is None or (before.at is None and not before.by):
        return before
    if stage.phase != "Preempted":
        return _taken_back(before)
    if before.at is None:
        return before
    return msgspec.structs.replace(before, count=before.count + 1, last_time=timestamp(seen.now), at=None)


def to_notify(seen: Observed) -> tuple[NotifyPod, ...]:
    """The pods that say something else than the status does. What is not written there yet is not told."""
    made = seen.job.status.preemption
    if made is None:
        return ()
    return tuple(
        NotifyPod(pod=pod, at=made.at)
        for pod in seen.pods
        if pod.metadata.deletion_timestamp is None
        and pod.status.phase not in _ENDED
        and pod.metadata.annotations.get(names.PREEMPTING_AT) != made.at
    )


def due_at(status: GPUJobStatus) -> datetime | None:
    """When the job is to make way, by its status; None where it is not told to."""
    made = status.preemption
    return None if made is None or made.at is None else moment(made.at)


def _announced(before: Preemption, notice: Notice, *, now: datetime) -> Preemption:
    if before.at is not None and before.by == notice.by:
        # Priorities may have been changed since: what is said of them is to be true.
        return msgspec.structs.replace(before, message=notice.message)
    # Whole seconds, and never less than was promised.
    at = now + timedelta(seconds=notice.grace_seconds + 1)
    return msgspec.structs.replace(before, at=timestamp(at), by=notice.by, message=notice.message)


def _taken_back(before: Preemption) -> Preemption | None:
    if not before.count:
        # None would leave the pods with a notice that nobody takes back.
        return Preemption()
    return msgspec.structs.replace(before, at=None, by="", message="")
