"""The earliest start of a GPUJob: its beginTime, and the pause after an attempt that ended.

Pure.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import Attempt, GPUJob
from dovetail.api.reasons import start as says
from dovetail.formats.timestamps import moment, timestamp
from dovetail.jobs.obstacle import Obstacle

# The pause of the Job controller between retries.
_FIRST_PAUSE_SECONDS: Final = 10
_LONGEST_PAUSE_SECONDS: Final = 360
# A run that ended through no fault of its own restarts soon, but not at once: the cause may persist.
_FREE_PAUSE_SECONDS: Final = 2
# A longer run does not suggest that the next one ends as soon.
_SHORT_RUN_SECONDS: Final = 600


def too_early(job: GPUJob, *, now: datetime) -> Obstacle | None:
    """Why the job may not start before its beginTime; None without one, or once it has come."""
    try:
        begin = begin_of(job)
    except ValueError:
        return Obstacle.of(says.NO_TIME(value=job.spec.begin_time or ""))
    if begin is None or begin <= now:
        return None
    return Obstacle.of(says.BEGINS(time=timestamp(begin)))


def begin_of(job: GPUJob) -> datetime | None:
    """The time before which the job does not start. Raises `ValueError` for an invalid time."""
    return None if job.spec.begin_time is None else moment(job.spec.begin_time)


def resting(job: GPUJob, *, now: datetime) -> Obstacle | None:
    """Why the next attempt may not begin yet; None where it may."""
    due = due_again(job)
    if due is None or due <= now:
        return None
    number, why = job.status.attempt, job.status.attempts[-1].message
    return Obstacle.of(says.NEXT_ATTEMPT(number=number, time=timestamp(due), why=why))


def due_again(job: GPUJob) -> datetime | None:
    """When the next attempt may begin.

    None for a job on its first attempt, or on one that has begun before.
    """
    status = job.status
    if not status.attempts or status.start_time is not None:
        return None
    last = status.attempts[-1]
    pause = min(_LONGEST_PAUSE_SECONDS, _FREE_PAUSE_SECONDS * 2 ** (_short_free_runs(status.attempts) - 1))
    if last.counted:
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(10, max(0, status.retries - 1)))
    elif last.reason == "Suspended":
        pause = 0
    return moment(last.end_time) + timedelta(seconds=pause)


def _short_free_runs(attempts: Sequence[Attempt]) -> int:
    """How many runs in a row up to the last one were short and cost no retry.

    Their cause seems to persist.
    """
    count = 0
    for each in reversed(attempts):
        ran = (moment(each.end_time) - moment(each.start_time or each.end_time)).total_seconds()
        if each.counted or each.reason == "Suspended" or ran > _SHORT_RUN_SECONDS:
            break
        count += 1
    return max(1, count)
