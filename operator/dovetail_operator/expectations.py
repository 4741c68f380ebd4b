"""What waiting jobs may expect, learned from the GPUJobs that are there: how much of its time limit a job uses, and how
far the starts were off that had been foreseen. A restart learns it anew from the jobs that have ended. No I/O."""

from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob, Phase, QueuePlace
from dovetail.queue.expecting import Foreseen, Misses, RunTimesUsed
from dovetail.queue.foresight import Start
from dovetail_operator.durations import moment, timestamp

# Ends that say how long a job needs; the others were cut short by somebody.
_BY_ITSELF: Final[frozenset[Phase]] = frozenset({"Succeeded", "Failed", "TimedOut"})


class Expectations:
    """Feed it every change of every GPUJob."""

    def __init__(self) -> None:
        self._used = RunTimesUsed()
        self._misses = Misses()
        self._ended: set[str] = set()

    def put(self, job: GPUJob) -> None:
        """A GPUJob was seen."""
        uid, status, limit = job.metadata.uid, job.status, job.spec.active_deadline_seconds
        if status.start_time is None:
            return
        started = moment(status.start_time)
        self._misses.started(uid, now_seconds=started.timestamp())
        if status.phase in _BY_ITSELF and status.completion_time and limit and uid not in self._ended:
            self._ended.add(uid)
            ran = max(0.0, (moment(status.completion_time) - started).total_seconds())
            self._used.ended(_group(job), ran_seconds=ran, limit_seconds=limit)

    def drop(self, job: GPUJob) -> None:
        """A GPUJob is gone."""
        self._ended.discard(job.metadata.uid)
        self._misses.forget(job.metadata.uid)

    def run_seconds(self, job: GPUJob, *, so_far_seconds: float = 0.0) -> float | None:
        """How long the job is likely to run in all; None where it has no limit, or nothing is known of jobs like it."""
        limit, group = job.spec.active_deadline_seconds, _group(job)
        if limit is None or not self._used.knows(group):
            return None
        return self._used.expected_seconds(group, limit_seconds=limit, so_far_seconds=so_far_seconds)

    def range_seconds(self, job: GPUJob, *, so_far_seconds: float = 0.0) -> tuple[float, float] | None:
        """How long it runs if it ends early, and if it ends late; None where that is not known."""
        limit, group = job.spec.active_deadline_seconds, _group(job)
        if limit is None:
            return None
        return self._used.range_seconds(group, limit_seconds=limit, so_far_seconds=so_far_seconds)

    def place(self, start: Start, *, now: datetime) -> QueuePlace:
        """The estimate of a start with its bounds; the position is the queue's word."""
        early, late = start.range_seconds or (start.in_seconds, start.in_seconds)
        foreseen = Foreseen(seconds=start.in_seconds, early_seconds=early, late_seconds=late, gpus=start.gpus)
        self._misses.told(start.key, foreseen, now_seconds=now.timestamp())
        bounds = self._misses.bounds(foreseen)
        return QueuePlace(
            position=1,
            estimated_start=_at(now, start.in_seconds),
            estimated_start_earliest=_at(now, bounds.earliest_seconds),
            estimated_start_latest=_at(now, bounds.latest_seconds),
            basis=start.basis,
        )


def _at(now: datetime, seconds: float) -> str:
    # To the nearest second, so that the same end gives the same estimate whenever it is reckoned.
    return timestamp(now + timedelta(seconds=seconds + 0.5))


def _group(job: GPUJob) -> str:
    return f"{job.metadata.namespace}/{job.spec.workers}x{job.status.request}"
