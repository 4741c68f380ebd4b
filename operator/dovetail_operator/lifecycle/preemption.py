"""Preemption of a running job: status, notice in its pods, suspension and requeue. Pure.

The steps are:

1. The status says when the job ends and for which job.
2. An annotation announces the time to the pods, and a file in each pod shows it. Without a grace period this step is
   left out: no pod has time to read it.
3. At that time the batch Job is suspended, if a new cycle confirms that the other job starts.

Without that confirmation the notice is withdrawn. Each step follows from what the API server has, so the operator can
stop and resume between any two of them.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJobStatus, Preemption
from dovetail.formats.durations import moment, timestamp
from dovetail_operator.job.actions import PatchJob, Stage
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyPod:
    """Annotate the pod with the time when it ends. None removes the annotation."""

    pod: Pod
    at: str | None


def is_due(seen: Observed) -> bool:
    """Whether the job has to end now: its time has come and the same notice still holds."""
    made, notice = seen.job.status.preemption, seen.notice
    if made is None or made.at is None or notice is None or notice.by != made.by:
        return False
    return moment(made.at) <= seen.now


def with_preemption(seen: Observed, *, stage: Stage) -> Stage:
    """The stage of a job that is or was preempted; any other stage unchanged."""
    made = seen.job.status.preemption
    if stage.phase in {"Starting", "Running"}:
        if made is not None and is_due(seen):
            suspend = PatchJob(spec={"suspend": True})
            reason = "NodeUnhealthy" if made.by == DRAIN else "Priority"
            return Stage(phase="Preempted", reason=reason, message=made.message, admitted=False, actions=(suspend,))
        return _with_notice(seen, stage=stage)
    return replace(stage, phase="Preempted") if stage.phase == "Queued" and made is not None and made.by else stage


def _with_notice(seen: Observed, *, stage: Stage) -> Stage:
    """The stage with the message of the status's notice, in the same write as the notice."""
    made = preemption_of(seen, stage=stage)
    if stage.message or seen.notice is None or made is None or made.at is None:
        return stage
    return replace(stage, message=f"{made.message}: its pods are ended at {made.at}")


def preemption_of(seen: Observed, *, stage: Stage) -> Preemption | None:
    """The preemption entry of the status."""
    before, notice = seen.job.status.preemption, seen.notice
    if stage.phase in {"Starting", "Running"} and notice is not None:
        return _announced(before or Preemption(), notice=notice, now=seen.now)
    if before is None or (before.at is None and not before.by):
        return before
    if stage.phase != "Preempted":
        return _taken_back(before)
    if before.at is None:
        return before
    return msgspec.structs.replace(before, count=before.count + 1, last_time=timestamp(seen.now), at=None)


def to_notify(seen: Observed) -> tuple[NotifyPod, ...]:
    """The pods whose annotation differs from the status.

    What the status does not have yet is not announced, nor what comes too late for the pods to act on it.
    """
    made = seen.job.status.preemption
    if made is None or (made.at is not None and moment(made.at) <= seen.now):
        return ()
    return tuple(
        NotifyPod(pod=pod, at=made.at)
        for pod in seen.pods
        if pod.metadata.deletion_timestamp is None
        and not is_terminated(pod)
        and pod.metadata.annotations.get(names.PREEMPTING_AT) != made.at
    )


def due_at(status: GPUJobStatus) -> datetime | None:
    """When the job has to end by its status; None without a preemption."""
    made = status.preemption
    return None if made is None or made.at is None else moment(made.at)


def _announced(before: Preemption, *, notice: Notice, now: datetime) -> Preemption:
    if before.at is not None and before.by == notice.by:
        # Priorities may have changed since: keep the message correct.
        return msgspec.structs.replace(before, message=notice.message)
    # Timestamps have whole seconds. The extra second keeps the promised grace period, if there is one.
    at = now + timedelta(seconds=notice.grace_seconds + 1 if notice.grace_seconds else 0)
    return msgspec.structs.replace(before, at=timestamp(at), by=notice.by, message=notice.message)


def _taken_back(before: Preemption) -> Preemption | None:
    if not before.count:
        # None would leave a notice in the pods that is never withdrawn.
        return Preemption()
    return msgspec.structs.replace(before, at=None, by="", message="")
