"""What to expect of waiting jobs, learned from the GPUJobs that exist. No I/O.

It learns how much of its time limit a job uses, which jobs arrive at which hour, and how far off estimated starts were.
After a restart it learns all of this again from the GPUJobs, except `misses`, which the caller must keep.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Final

from dovetail.api.gpujob import GPUJob, Phase, QueuePlace
from dovetail.formats.durations import after, moment, timestamp
from dovetail.names import USER
from dovetail.queue.estimates.arrivals import REMEMBERED, Arrivals
from dovetail.queue.estimates.calibration import Foreseen, Misses
from dovetail.queue.estimates.monte_carlo import Coming
from dovetail.queue.estimates.run_times import RunTimesUsed
from dovetail.queue.estimates.simulation import Start
from dovetail.queue.model.candidates import Candidate

# The phases of jobs whose end shows how long they need; other jobs were cut short from outside.
_BY_ITSELF: Final[frozenset[Phase]] = frozenset({"Succeeded", "Failed", "TimedOut"})
# The part of a name that differs between runs of the same work: a number, or the suffix of generateName.
_RUN: Final = re.compile(r"(-[bcdfghjklmnpqrstvwxz2456789]{5}|[-.]?[0-9]+)$")


class Expectations:
    """Learns from every change of every GPUJob."""

    def __init__(self) -> None:
        self._used = RunTimesUsed()
        self.misses = Misses()
        self._arrivals = Arrivals()
        self._ended: set[str] = set()
        self._learned = 0
        self._came: set[str] = set()

    def observe(self, job: GPUJob) -> None:
        """Learn from a GPUJob that was added or has changed."""
        uid, status, limit = job.metadata.uid, job.status, job.spec.active_deadline_seconds
        if status.start_time is None:
            return
        started = moment(status.start_time)
        self.misses.started(uid, now_seconds=started.timestamp())
        if status.phase in _BY_ITSELF and status.completion_time and limit and uid not in self._ended:
            self._ended.add(uid)
            ran = max(0.0, (moment(status.completion_time) - started).total_seconds())
            self._learned += 1
            self._used.ended(groups_of(job), ran_seconds=ran, limit_seconds=limit)

    def drop(self, job: GPUJob) -> None:
        """Drop a GPUJob that was deleted."""
        self._ended.discard(job.metadata.uid)
        self._came.discard(job.metadata.uid)
        self.misses.forget(job.metadata.uid)

    def learned_of(self, job: GPUJob) -> int:
        """A version that changes with each end that may change the expected run time of the job."""
        return 0 if job.spec.active_deadline_seconds is None else self._learned

    def run_seconds(self, job: GPUJob, *, so_far_seconds: float = 0.0) -> float | None:
        """The expected run time of the job in total.

        None without a limit, or when no similar jobs are known.
        """
        limit, groups = job.spec.active_deadline_seconds, groups_of(job)
        if limit is None or not self._used.knows(groups):
            return None
        return self._used.expected_seconds(groups, limit_seconds=limit, so_far_seconds=so_far_seconds)

    def range_seconds(self, job: GPUJob, *, so_far_seconds: float = 0.0) -> tuple[float, ...] | None:
        """Equally likely run times in ascending order, in seconds; None when they are not known."""
        limit, groups = job.spec.active_deadline_seconds, groups_of(job)
        if limit is None:
            return None
        return self._used.range_seconds(groups, limit_seconds=limit, so_far_seconds=so_far_seconds)

    def new(self, jobs: Iterable[GPUJob]) -> list[GPUJob]:
        """The jobs whose submission is not recorded yet, oldest first, at most `REMEMBERED`."""
        found = [job for job in jobs if job.metadata.uid not in self._came]
        found.sort(key=lambda job: job.metadata.creation_timestamp)
        self._came.update(job.metadata.uid for job in found)
        return found[-REMEMBERED:]

    def came(self, job: GPUJob, *, candidate: Candidate | None) -> None:
        """Record the submission of a job; `candidate` is None for a job that requests no GPUs."""
        if candidate is not None:
            self._arrivals.came(candidate, at_seconds=moment(job.metadata.creation_timestamp).timestamp())

    def coming(self, *, now: datetime) -> Coming:
        """The predicted submissions from now on."""
        return partial(self._arrivals.again, now_seconds=now.timestamp())

    def place(self, start: Start, *, now: datetime) -> QueuePlace:
        """The estimate of a start with its bounds. The caller sets the position."""
        # Without learned run times, a job may end at any time until its limit.
        early, late = start.range_seconds or (0.0, start.in_seconds)
        foreseen = Foreseen(seconds=start.in_seconds, early_seconds=early, late_seconds=late)
        bounds = self.misses.bounds_of(start.key, foreseen=foreseen, now_seconds=now.timestamp())
        return QueuePlace(
            position=1,
            estimated_start=_at(now, seconds=start.in_seconds),
            estimated_start_earliest=_at(now, seconds=bounds.earliest_seconds),
            estimated_start_latest=_at(now, seconds=bounds.latest_seconds),
            basis=start.basis,
            bounds_held=self.misses.held.level,
        )


def _at(now: datetime, *, seconds: float) -> str:
    # To the nearest second, so that the same end gives the same estimate whenever it is computed. Time limits of
    # decades add up to dates after the last one that a calendar has.
    return timestamp(after(now, seconds=seconds + 0.5))


def groups_of(job: GPUJob) -> tuple[str, ...]:
    """The groups of similar jobs, the most similar first.

    They range from the same work of the same user to all jobs with the same limit or request.
    """
    namespace, limit = job.metadata.namespace, job.spec.active_deadline_seconds
    user, what = job.metadata.annotations.get(USER, ""), f"{job.spec.workers}x{job.status.request}"
    return (
        f"{namespace}/{user}/{_RUN.sub('', job.metadata.name)}/{what}/{limit}",
        f"{namespace}/{what}/{limit}",
        f"limit {limit}",
        f"{namespace}/{what}",
    )
