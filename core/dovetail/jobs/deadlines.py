"""The time limit of a run of a GPUJob, from its limits or its lease. Pure."""

from dovetail.api.builtin import Job
from dovetail.api.gpujob import MAX_SECONDS, GPUJob
from dovetail.formats.timestamps import moment


def deadline_seconds(job: GPUJob, *, child: Job | None = None) -> int | None:
    """The time limit, in seconds, of the batch Job `child` or of a new one.

    None for a job without a limit. The limit that let a job start before others stays the most, whatever the spec says
    by now: it may have changed between the queue's decision and its record in the status.
    """
    if job.spec.reservation is not None:
        return _lease_seconds(job, child=child)
    placement = job.status.placement
    limits = [
        job.spec.active_deadline_seconds,
        _left_seconds(job),
        None if placement is None else placement.limit_seconds,
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def _left_seconds(job: GPUJob) -> int | None:
    limit = job.spec.maximum_execution_time_seconds
    return None if limit is None else max(1, limit - job.status.earlier_run_seconds)


def _lease_seconds(job: GPUJob, *, child: Job | None) -> int | None:
    """The lease counts from its last renewal, the batch Job's limit from its start."""
    lease = job.spec.reservation
    assert lease is not None, "asked for reservations alone"
    start = None if child is None else child.status.start_time
    if start is None or lease.renew_time is None:
        return lease.duration_seconds
    renewed = max(0.0, (moment(lease.renew_time) - moment(start)).total_seconds())
    # The Job controller computes in nanoseconds: a renewal centuries ahead would overflow to a limit in the past.
    return min(MAX_SECONDS, round(renewed) + lease.duration_seconds)
