"""What to expect of waiting jobs, learned from the GPUJobs that exist. No I/O.

It learns how much of its time limit a job uses, which jobs arrive at which hour, and how far off estimated starts were.
After a restart it learns all of this again from the GPUJobs, except `misses`, which the caller must keep.
"""

import re
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from math import floor, log2
from typing import Final

from dovetail.api.gpujob import GPUJob, Phase, QueuePlace
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import Sentence
from dovetail.formats.durations import after, moment, timestamp
from dovetail.names import USER
from dovetail.queue.estimates.calibration import Bounds, Foreseen, Misses
from dovetail.queue.estimates.monte_carlo import Coming
from dovetail.queue.estimates.simulation import Start
from dovetail.queue.model.candidates import Candidate

# The phases of jobs whose end shows how long they need; other jobs were cut short from outside.
_BY_ITSELF: Final[frozenset[Phase]] = frozenset({"Succeeded", "Failed", "TimedOut"})
# The part of a name that differs between runs of the same work: a number, or the suffix of generateName.
_RUN: Final = re.compile(r"(-[bcdfghjklmnpqrstvwxz2456789]{5}|[-.]?[0-9]+)$")


_HOUR: Final = 3_600.0
_DAY: Final = 86_400.0
# The number of days that predictions use, and the most jobs that are remembered.
_DAYS: Final = 7
REMEMBERED: Final = 1_000
_TO_COME: Final = "9999-12-31T23:59:59Z"
# A shorter history gives no rate.
_LEAST_SECONDS: Final = 3_600.0


# The number of ended jobs that each group remembers, and the number of groups.
_REMEMBERED: Final = 200
_GROUPS: Final = 2_000
# A group with fewer ended jobs is not used.
_ENOUGH: Final = 5
# Before any job has ended: most jobs use less than their limit.
_BEFORE: Final = 0.5
_LEAST: Final = 0.02
# The quantiles that make a range of run times.
PARTS: Final = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
# An estimate that is moved by more than both, the second a part of what was foreseen, says so.
_MOVED_SECONDS: Final = 60.0
_MOVED_PART: Final = 0.1


class _Latest:
    """The latest values, sorted."""

    def __init__(self) -> None:
        self._by_age: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        self._by_age.append(value)
        insort(self._sorted, value)
        if len(self._by_age) > _REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._by_age.popleft())]

    def above(self, value: float) -> list[float]:
        """The values from this one on, in ascending order."""
        return self._sorted[bisect_left(self._sorted, value) :]


class RunTimesUsed:
    """The part of its time limit that a job uses: users request more time than they need.

    It is that of the ended jobs of the most similar group that has enough of them, otherwise of all jobs. A job that
    runs is compared with those that ran as long. Groups of a job are ordered from the most similar to the widest.
    """

    def __init__(self) -> None:
        self._of_all = _Latest()
        self._of_group: dict[str, _Latest] = {}
        self._reckoned: dict[tuple[Sequence[str], float], tuple[float, ...]] = {}

    def ended(self, groups: Sequence[str], *, ran_seconds: float, limit_seconds: float) -> None:
        """Record that a job of these groups ended by itself."""
        used = min(1.0, ran_seconds / limit_seconds)
        self._of_all.add(used)
        for group in groups:
            # Least recently updated groups come first, and are dropped first.
            known = self._of_group.pop(group, None) or _Latest()
            known.add(used)
            self._of_group[group] = known
        while len(self._of_group) > _GROUPS:
            del self._of_group[next(iter(self._of_group))]
        self._reckoned.clear()

    @property
    def is_enough(self) -> bool:
        """Whether enough jobs have ended for an estimate."""
        return len(self._of_all) >= _ENOUGH

    def expected_seconds(
        self, groups: Sequence[str], *, limit_seconds: float, so_far_seconds: float = 0.0, part: float = 0.5
    ) -> float:
        """The expected run time in seconds, in total, of a job that has run `so_far_seconds`.

        It is the quantile `part` of similar jobs.
        """
        so_far = min(1.0, so_far_seconds / limit_seconds)
        known = self._comparable(groups, above=so_far)
        return _expected(known, part=part, so_far=so_far) * limit_seconds

    def range_seconds(
        self, groups: tuple[str, ...], *, limit_seconds: float, so_far_seconds: float = 0.0
    ) -> tuple[float, ...] | None:
        """The same for each of `PARTS`, in seconds; None where too little is known."""
        if not self.is_enough:
            return None
        found = None if so_far_seconds else self._reckoned.get((groups, limit_seconds))
        if found is None:
            so_far = min(1.0, so_far_seconds / limit_seconds)
            known = self._comparable(groups, above=so_far)
            found = tuple(_expected(known, part=part, so_far=so_far) * limit_seconds for part in PARTS)
        if not so_far_seconds:
            # Cached: thousands of similar jobs wait, and each cycle asks for all of them.
            self._reckoned[groups, limit_seconds] = found
        return found

    def _comparable(self, groups: Sequence[str], *, above: float) -> list[float]:
        """What jobs used that used at least `above`, in ascending order; empty if too few jobs have ended.

        They are of the most similar group that has enough of them. A group that has fewer adds them to those of the
        next one, which mostly has them too: the more similar a job, the more it weighs.
        """
        if not self.is_enough:
            return []
        found: list[float] = []
        for known in (*(self._of_group.get(group) for group in groups), self._of_all):
            if known is None:
                continue
            more = known.above(above)
            found = sorted([*found, *more]) if found else more
            if len(found) >= _ENOUGH:
                break
        return found


def _expected(known: Sequence[float], *, part: float, so_far: float) -> float:
    """The quantile `part`, 0 to 1, of what the `known` jobs used, for a job that has used `so_far`."""
    # It has run longer than all others, or there are none: it may end at any time until its limit.
    until_limit = max(_BEFORE, so_far + part * (1.0 - so_far))
    used = known[min(len(known) - 1, int(part * len(known)))] if known else until_limit
    return max(used, so_far, _LEAST)


class Arrivals:
    """The jobs of the last days, to be replayed: what comes is predicted from the same hours of the days before."""

    def __init__(self) -> None:
        self._latest: deque[tuple[float, Candidate]] = deque(maxlen=REMEMBERED)
        self._since: float | None = None

    def came(self, job: Candidate, *, at_seconds: float) -> None:
        """Record that the job was submitted then.

        Call this once for each job, in order of submission.
        """
        self._since = at_seconds if self._since is None else self._since
        if len(self._latest) == REMEMBERED:
            self._since = self._latest[0][0]
        self._latest.append((at_seconds, job))

    def again(self, *, now_seconds: float, play: int, above: int) -> Iterator[tuple[float, Candidate]]:
        """Yield future jobs of a priority above `above`, by time, without end.

        Each comes with the seconds until it arrives. They repeat the days before. Each `play` begins with another one
        of these days.
        """
        if self._since is None or now_seconds - self._since < _LEAST_SECONDS:
            return
        days = min(_DAYS, floor((now_seconds - self._since) / _DAY))
        span = days * _DAY if days else now_seconds - self._since
        begin = now_seconds - span + (play % days) * _DAY if days else now_seconds - span
        past = sorted(
            ((at - begin) % span, number, job)
            for number, (at, job) in enumerate(self._latest)
            if job.priority > above and now_seconds - span <= at < now_seconds
        )
        for turn in count() if past else ():
            for at, number, job in past:
                # Younger than every job that waits now.
                again = replace(job, key=f"to-come/{turn}/{number}/{job.key}", created=_TO_COME)
                yield at + turn * span, again


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """When a job is expected to start, in seconds from now, between which bounds, and what that rests on."""

    seconds: float
    bounds: Bounds
    basis: Sentence


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

    @property
    def learned(self) -> int:
        """A version that changes with each end that may change the expected run time of a job with a time limit."""
        return self._learned

    def learned_of(self, job: GPUJob) -> int:
        """A version that changes with each end that may change the expected run time of the job."""
        return 0 if job.spec.active_deadline_seconds is None else self._learned

    def run_seconds(self, job: GPUJob, *, so_far_seconds: float = 0.0) -> float | None:
        """The expected run time of the job in total.

        None without a limit, or while too few jobs have ended.
        """
        limit = job.spec.active_deadline_seconds
        if limit is None or not self._used.is_enough:
            return None
        return self._used.expected_seconds(groups_of(job), limit_seconds=limit, so_far_seconds=so_far_seconds)

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

    def expected(self, start: Start) -> Expected:
        """The estimate of a start, moved by what was learned of earlier ones."""
        foreseen = _foreseen(start)
        return self._expected(start, foreseen=foreseen, bounds=self.misses.bounds(foreseen))

    def place(self, start: Start, *, now: datetime) -> QueuePlace:
        """The same as a place in the queue, recorded to learn from the real start. The caller sets the position."""
        foreseen = _foreseen(start)
        bounds = self.misses.bounds_of(start.key, foreseen=foreseen, now_seconds=now.timestamp())
        expected = self._expected(start, foreseen=foreseen, bounds=bounds)
        return QueuePlace(
            position=1,
            estimated_start=_at(now, seconds=expected.seconds),
            estimated_start_earliest=_at(now, seconds=bounds.earliest_seconds),
            estimated_start_latest=_at(now, seconds=bounds.latest_seconds),
            basis=expected.basis.message,
            basis_details=expected.basis.listed,
            bounds_held=self.misses.held.level,
        )

    def _expected(self, start: Start, *, foreseen: Foreseen, bounds: Bounds) -> Expected:
        seconds, basis = self.misses.expected_seconds(foreseen), start.basis
        if abs(seconds - foreseen.seconds) > max(_MOVED_SECONDS, _MOVED_PART * foreseen.seconds):
            basis += says.MOVED_EARLIER() if seconds < foreseen.seconds else says.MOVED_LATER()
        return Expected(seconds=seconds, bounds=bounds, basis=basis)


def _foreseen(start: Start) -> Foreseen:
    # Without learned run times, a job may end at any time until its limit.
    early, late = start.range_seconds or (0.0, start.in_seconds)
    return Foreseen(seconds=start.in_seconds, early_seconds=early, late_seconds=late)


def _at(now: datetime, *, seconds: float) -> str:
    # To the nearest second, so that the same end gives the same estimate whenever it is computed. Time limits of
    # decades add up to dates after the last one that a calendar has.
    return timestamp(after(now, seconds=seconds + 0.5))


def groups_of(job: GPUJob) -> tuple[str, ...]:
    """The groups of similar jobs, the most similar first.

    They range from the same work of the same user to all jobs with the same or about the same limit, or the same
    request.
    """
    namespace, limit = job.metadata.namespace, job.spec.active_deadline_seconds
    user, what = job.metadata.annotations.get(USER, ""), f"{job.spec.workers}x{job.status.request}"
    return (
        f"{namespace}/{user}/{_RUN.sub('', job.metadata.name)}/{what}/{limit}",
        f"{namespace}/{what}/{limit}",
        f"limit {limit}",
        about(limit),
        f"{namespace}/{what}",
    )


def about(limit: float | None) -> str:
    """The group of jobs whose limits are nearest to the same power of two hours.

    Few jobs share a limit that is no round number, and how much of a limit is used depends on its size.
    """
    return "no limit" if limit is None else f"limit about 2^{round(log2(max(1.0, limit) / _HOUR))} h"
