"""Which jobs may move, how often and for whom: what jobs and the configuration say. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import structs

from dovetail.api.gpujob import MOST_EARLIER_TIMES, GPUJob, Move, Moves
from dovetail.formats.durations import timestamp
from dovetail.formats.timestamps import moment

Mode = Literal["Off", "Plan", "Apply"]
# How long a request for moves counts. Room for a plan may come meanwhile.
REQUEST_TIME: Final = timedelta(minutes=10)
_HOUR: Final = timedelta(hours=1)
_RUNS: Final = frozenset({"Starting", "Running"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRules:
    """When jobs move for others.

    - `mode`: what happens on need: nothing, a report, or moves; a request counts in each mode
    - `default`, `by_namespace`: whether a job may move that does not say so
    - `after_seconds`: how long a job waits before jobs move for it without a request
    - `patience_seconds`: the same by the least priority that it is for
    - `rest_seconds`: the least time between two moves of one job
    - `per_hour`: how many moves there are within an hour at most
    """

    mode: Mode = "Off"
    default: Moves = "Never"
    by_namespace: Mapping[str, Moves] = field(default_factory=dict)
    after_seconds: float = 300.0
    patience_seconds: Mapping[int, float] = field(default_factory=dict)
    rest_seconds: float = 3600.0
    per_hour: int = 20

    def of(self, job: GPUJob) -> Moves:
        """Whether the job may move: as it says, else as its namespace does."""
        return job.spec.moves or self.by_namespace.get(job.metadata.namespace, self.default)

    def lets_move(self, job: GPUJob, *, now: datetime) -> bool:
        """Whether the job may move now."""
        moved = job.status.move
        if self.of(job) == "Never" or under_way(moved):
            return False
        last = None if moved is None else moved.last_time
        return last is None or moment(last) + timedelta(seconds=self.rest_seconds) <= now

    def waits_seconds(self, priority: int) -> float:
        """How long a job of this priority waits before jobs move for it without a request."""
        classes = [least for least in self.patience_seconds if least <= priority]
        return self.patience_seconds[max(classes)] if classes else self.after_seconds

    def left(
        self, jobs: Iterable[GPUJob], *, now: datetime, of_deleted: int = 0, decided: Mapping[str, Move] | None = None
    ) -> int:
        """How many moves there may still be within this hour; those that are to come count already.

        `jobs` are all GPUJobs, `of_deleted` moves of others, and `decided` the moves that statuses do not show yet, by
        UID.
        """
        known = decided or {}
        recent = sum(_count(job, move=known.get(job.metadata.uid, job.status.move), now=now) for job in jobs)
        return max(0, self.per_hour - recent - of_deleted)


class MovesOfDeleted:
    """When jobs moved that were deleted within the hour after it. Mutable."""

    def __init__(self) -> None:
        # By UID, and for those before the last one with the number of the move.
        self._times: dict[str, str] = {}

    def observe(self, job: GPUJob) -> None:
        """Do nothing: a job that exists says itself when it moved."""

    def drop(self, job: GPUJob) -> None:
        """Keep the moves of a deleted GPUJob."""
        move, uid = job.status.move, job.metadata.uid
        if move is not None and move.last_time is not None:
            self._times[uid] = move.last_time
            before = enumerate(reversed(move.earlier_times), start=1)
            self._times |= {f"{uid}/{move.count - back}": at for back, at in before}

    def times(self, *, now: datetime) -> dict[str, str]:
        """The times of those that count against the budget of this hour, each by a key of its own."""
        self._times = {uid: at for uid, at in self._times.items() if _is_within_hour(at, now=now)}
        return dict(self._times)

    def restore(self, times: Mapping[str, str]) -> None:
        """Add those that an earlier operator kept."""
        self._times = {**times, **self._times}


def moved(move: Move, *, now: datetime) -> Move:
    """The entry once the job has ended to move."""
    before = [] if move.last_time is None else [*move.earlier_times, move.last_time]
    recent = [at for at in before if _is_within_hour(at, now=now)]
    return structs.replace(
        move, count=move.count + 1, last_time=timestamp(now), earlier_times=recent[-MOST_EARLIER_TIMES:]
    )


def _count(job: GPUJob, *, move: Move | None, now: datetime) -> int:
    """How many moves of the job count against the budget of this hour."""
    if move is None:
        return 0
    ends = under_way(move) and move.reserved is not None and job.status.phase in _RUNS
    times = [] if move.last_time is None else [*move.earlier_times, move.last_time]
    return ends + sum(_is_within_hour(at, now=now) for at in times)


def _is_within_hour(at: str, *, now: datetime) -> bool:
    return moment(at) > now - _HOUR


def under_way(move: Move | None) -> bool:
    """Whether a move of the job has begun and its run elsewhere has not."""
    return move is not None and bool(move.by)


def is_requested(job: GPUJob, *, now: datetime) -> bool:
    """Whether moves are requested for the job now."""
    at = job.spec.move_request_time
    return at is not None and now - REQUEST_TIME <= moment(at) <= now + REQUEST_TIME
