"""A run in a job's status: its size, its pods, and its end, which may precede the job's end. Pure."""

from datetime import datetime

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus, is_finished
from dovetail.api.meta import Condition, find_condition
from dovetail.formats.timestamps import moment, seconds_between
from dovetail.jobs.batch_job import is_external


def end_of_run(status: GPUJobStatus) -> str | None:
    """When the run that began at `startTime` ended.

    None while it goes on, and for a job without one.
    """
    if status.start_time is None:
        return None
    return earlier_end(status.completion_time, start=status.start_time, conditions=status.conditions)


def earlier_end(end: str | None, *, start: str, conditions: list[Condition]) -> str | None:
    """`end`, or when the run was suspended before that and did not resume."""
    held = find_condition(conditions, type="Suspended")
    since = held.last_transition_time if held is not None and held.status == "True" else None
    if since is None or moment(since) < moment(start) or (end is not None and moment(end) < moment(since)):
        return end
    return since


def run_seconds(status: GPUJobStatus, *, now: datetime) -> float | None:
    """How long the latest run has lasted, in seconds: until its end, or until `now`; None before its start."""
    return seconds_between(status.start_time, end=end_of_run(status), now=now)


def workers_of(job: GPUJob) -> int:
    """How many workers the job runs or ran with: an elastic one may have fewer than it requests."""
    return job.spec.workers if job.status.elastic is None else job.status.elastic.workers


def has_a_scale(job: GPUJob, *, child: Job | None) -> bool:
    """Whether `spec.workers` sets the size of the job's run; Kueue sets it of those that it admits."""
    return job.status.elastic is not None and child is not None and not child.spec.suspend and not is_external(job)


def wants_more(job: GPUJob, *, child: Job | None) -> bool:
    """Whether more workers were requested since the run was planned than it has. `child` is the job's batch Job.

    A job that started with fewer workers than it requested then does not restart for more: no one asked for that.
    """
    made = job.status.elastic
    if made is None or child is None or is_finished(job) or not has_a_scale(job, child=child):
        return False
    return job.spec.workers > (child.spec.completions or job.spec.workers) and made.requested < job.spec.workers


def is_of_earlier_job(pod: Pod, *, number: int | None) -> bool:
    """Whether a pod with a job's name is of an earlier job that had this name, by its number.

    Such a pod may still end while its successor waits. Pods of guests and pods in seats may have no number.
    """
    own = str(number or "")
    return pod.metadata.labels.get(names.LABEL_JOB_NUMBER, own) != own
