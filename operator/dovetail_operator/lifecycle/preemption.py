"""Preemption of a running job: status, notice in its pods, suspension and requeue. Pure.

The steps are:

1. The status says when the job ends and for which job.
2. An annotation announces the time to the pods, and a file in each pod shows it. Without a grace period this step is
   left out: no pod has time to read it.
3. At that time the batch Job is suspended, if a new cycle confirms that the other job starts.

Without that confirmation the notice is withdrawn. Each step follows from what the API server has, so the operator can
stop and resume between any two of them.

Without a grace period, one write is notice and end: the status is `Preempted` with the time `at`. Once the watch has
brought it, the batch Job is suspended: a cycle that saw the suspension first would not know for whom the job ends.

The status write after the suspension counts the preemption and clears `at`, also where the job starts again with it.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJobStatus, Preemption
from dovetail.api.reasons import end as ends
from dovetail.formats.durations import moment, timestamp
from dovetail.jobs.batch_job import has_ended
from dovetail_operator.job.actions import PatchJob, Stage
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyPod:
    """Annotate the pod with the time when it ends. None removes the annotation."""

    pod: Pod
    at: str | None


def is_due(seen: Observed) -> bool:
    """Whether the job runs and has to end now: by the notice in its status, or by one without a grace period."""
    if seen.notice is None or seen.child is None or seen.child.spec.suspend:
        return False
    at = _announced_time(seen)
    return moment(at) <= seen.now if at is not None else not seen.notice.grace_seconds


def is_written_first(seen: Observed, *, status: GPUJobStatus) -> bool:
    """Whether `status` counts a preemption whose batch Job is about to run again: the count comes before any action."""
    return status.preemption != seen.job.status.preemption and _is_uncounted(seen)


def with_preemption(seen: Observed, *, stage: Stage) -> Stage:
    """The stage of a job that is or was preempted; any other stage unchanged."""
    made = seen.job.status.preemption
    if stage.phase in {"Starting", "Running"}:
        if seen.notice is not None and is_due(seen):
            suspend = () if _announced_time(seen) is None else (PatchJob(spec={"suspend": True}, disrupts=True),)
            clause = ends.ENDED_FOR_DRAIN if seen.notice.by == DRAIN else ends.ENDED_FOR_JOB
            if seen.notice.moves:
                clause = ends.ENDED_FOR_MOVE
            return Stage(phase="Preempted", why=clause(why=seen.notice.message), admitted=False, actions=suspend)
        return _with_notice(seen, stage=stage)
    return replace(stage, phase="Preempted") if stage.phase == "Queued" and made is not None and made.by else stage


def _with_notice(seen: Observed, *, stage: Stage) -> Stage:
    """The stage with the message of the status's notice, in the same write as the notice."""
    made = preemption_of(seen, stage=stage)
    if stage.message or seen.notice is None or made is None or made.at is None:
        return stage
    notice = ends.NOTICE(why=made.message, time=made.at)
    return replace(stage, why=notice.with_reason(stage.reason))


def preemption_of(seen: Observed, *, stage: Stage) -> Preemption | None:
    """The preemption entry of the status."""
    before, notice = seen.job.status.preemption, seen.notice
    if notice is not None and (stage.phase in {"Starting", "Running"} or _ends_without_notice(seen, stage=stage)):
        return _announced(before or Preemption(), notice=notice, now=seen.now)
    if before is None or (before.at is None and not before.by):
        return before
    if _is_uncounted(seen) or (before.at is not None and stage.phase == "Preempted"):
        before = _counted(before, at=before.at if _ends_now(seen.job.status) else timestamp(seen.now))
    return before if stage.phase == "Preempted" else _taken_back(before)


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


def _announced_time(seen: Observed) -> str | None:
    """When the job ends by its status, if that has the same notice; else None."""
    made = seen.job.status.preemption
    return made.at if made is not None and seen.notice is not None and made.by == seen.notice.by else None


def _ends_without_notice(seen: Observed, *, stage: Stage) -> bool:
    return stage.phase == "Preempted" and is_due(seen) and _announced_time(seen) is None


def _ends_now(status: GPUJobStatus) -> bool:
    """Whether the status is the only notice of a job that ends without a grace period, and its end is not counted."""
    return status.phase == "Preempted" and status.preemption is not None and status.preemption.at is not None


def _is_uncounted(seen: Observed) -> bool:
    """Whether the job has ended by the notice in its status, and the status does not count that yet.

    One write suspends the batch Job of a job with a grace period and the next one counts that: the operator may have
    stopped between them, and the job may start again at once.
    """
    suspended = seen.child is None or (seen.child.spec.suspend and not has_ended(seen.child))
    return suspended and (_ends_now(seen.job.status) or _was_due(seen))


def _was_due(seen: Observed) -> bool:
    """Whether the status has a running job whose time has come. A hold would have ended the job too."""
    status, at = seen.job.status, due_at(seen.job.status)
    return status.phase in {"Starting", "Running"} and at is not None and at <= seen.now and not seen.job.spec.suspend


def _counted(before: Preemption, *, at: str | None) -> Preemption:
    return msgspec.structs.replace(before, count=before.count + 1, last_time=at, at=None)


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
