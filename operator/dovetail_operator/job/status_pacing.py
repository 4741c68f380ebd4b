"""When a status change is written: at once, or later together with the changes that follow.

No I/O.

A status write costs the API server and all watchers more than any other step for a job. Two kinds of change are
therefore delayed: states between admission and the start of the last worker, and those of a preempted job while its
pods end. A phase, a plan or a reason to wait is never delayed, but for two cases: a plan that the batch Job carries is
written with the start, or a second later; and a preempted job, whose status says why it was ended, gets its next reason
after a rush (`Decisions.is_rush`).

A state on the way is written after a second, so that a user sees what a start waits for. While many jobs start, it is
written after five: most programs run by then, and two writes fewer for each are what a busy API server needs.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.meta import Condition

_NOW: Final = partial(datetime.now, UTC)
# So many within a second are more than one caller causes who submits job after job and waits for each number.
MANY: Final = 8
_WITHIN_SECONDS: Final = 1.0
PASSING_SECONDS: Final = 1.0
# The same for a state that begins while many jobs start.
BURST_PASSING_SECONDS: Final = 5.0
# The status of a gang names the devices of each worker: half a megabyte for 4,000, while workers start for a minute.
_DEVICES_PER_SECOND: Final = 200
# How long a preempted job's status may say nothing but why it was ended: as long as its pods may take to end.
_LEAVING_SECONDS: Final = 30.0
# The same in a rush. The room of those that left goes to others first: 1,077 jobs that end for a gang would otherwise
# have 1,540 more writes before its workers run.
_RUSH_SECONDS: Final = 90.0
_ON_THE_WAY: Final = frozenset({
    "elapsed", "measured", "memory", "reason", "message", "details", "conditions", "workers_active", "workers_ready",
    "nodes", "node_list", "devices",
})  # fmt: skip
_LEAVING: Final = _ON_THE_WAY | {"start_time", "earlier_run_seconds", "preemption"}
_LEAVING_REASONS: Final = frozenset({"Priority", "NodeUnhealthy", "Evaluating"})
_PASSING_REASONS: Final = frozenset({"", "Evaluating", "ContainerCreating", "GangWaiting"})
_PASSING_CONDITIONS: Final = frozenset({"Enforced", "SuccessCriteriaMet"})


class Burst:
    """Whether the latest `many` came within a second. Times are seconds of one clock."""

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self._latest: deque[float] = deque(maxlen=many)

    def note(self, now: float, *, count: int = 1) -> None:
        """Record that `count` come now."""
        self._latest.extend(now for _ in range(min(count, self._many)))

    def is_one(self, now: float) -> bool:
        """Whether many came within the last second. A clock that was set back ends a burst too."""
        return len(self._latest) == self._many and all(abs(now - each) <= _WITHIN_SECONDS for each in self._latest)


class Pacing:
    """Decides which changes may wait. Times are in seconds of a monotonic clock.

    `many_start` says whether many jobs start at a time, which `now` gives.
    """

    def __init__(
        self,
        *,
        many_start: Callable[[datetime], bool] = lambda _: False,
        now: Callable[[], datetime] = _NOW,
    ) -> None:
        self._many_start = many_start
        self._now = now
        # When the state began that is not written yet, and how long one on the way may wait.
        self._since: dict[str, tuple[float, float]] = {}

    def wait_seconds(
        self, uid: str, *, before: GPUJobStatus, after: GPUJobStatus, rush: bool = False, now: float
    ) -> float:
        """How many seconds the status `after` may still wait; 0 if it has to be written now.

        `rush` says whether many jobs end for others or many workers start.
        """
        changed = _changed(before, after=after)
        if not changed or _came_up_to_its_promise(before, after=after):
            return 0.0
        since, passing_seconds = self._since.get(uid) or (now, self._passing_seconds())
        patience = _patience_seconds(before, after=after, changed=changed, passing_seconds=passing_seconds, rush=rush)
        if not patience:
            return 0.0
        self._since[uid] = since, passing_seconds
        return max(0.0, since + patience - now)

    def passing(self, uid: str, *, now: float) -> None:
        """Note that a state began whose write may wait, unless another began before it."""
        if uid not in self._since:
            self._since[uid] = now, self._passing_seconds()

    def _passing_seconds(self) -> float:
        return BURST_PASSING_SECONDS if self._many_start(self._now()) else PASSING_SECONDS

    def written(self, uid: str) -> None:
        """Note that the job's status was written."""
        self._since.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Drop a deleted job."""
        self._since.pop(uid, None)


def _changed(before: GPUJobStatus, *, after: GPUJobStatus) -> set[str]:
    return {name for name in after.__struct_fields__ if getattr(before, name) != getattr(after, name)}


def _patience_seconds(
    before: GPUJobStatus, *, after: GPUJobStatus, changed: set[str], passing_seconds: float, rush: bool
) -> float:
    """How many seconds after its beginning a state of a job on its way may be written; 0 if that is due at once."""
    if _is_leaving(before, after=after, changed=changed, rush=rush):
        return _RUSH_SECONDS if rush else _LEAVING_SECONDS
    if _is_carried(before, after=after):
        return PASSING_SECONDS
    if not changed <= _ON_THE_WAY or not _is_passing(before, after=after):
        return 0.0
    patience = len(after.devices) / _DEVICES_PER_SECOND
    if patience <= passing_seconds:
        return passing_seconds
    is_complete = before.reason == "GangWaiting" and after.reason != "GangWaiting"
    return 0.0 if is_complete else patience


def _is_carried(before: GPUJobStatus, *, after: GPUJobStatus) -> bool:
    """Whether the batch Job has the plan of a job on its way, and nothing else is worth a write."""
    if before.phase not in {None, "Queued"} or after.phase != "Starting" or after.reason not in _PASSING_REASONS:
        return False
    # Other jobs that wait have no plan.
    return before.placement is not None and before.placement == after.placement


def _is_leaving(before: GPUJobStatus, *, after: GPUJobStatus, changed: set[str], rush: bool) -> bool:
    """Whether the status says why the job was ended, and news of it may wait: its pods end, or there is a rush."""
    if not before.phase == after.phase == "Preempted" or before.reason not in _LEAVING_REASONS:
        return False
    if after.reason in _LEAVING_REASONS:
        return changed <= _LEAVING
    # Others follow the room that a job reserves.
    reserves = after.queue is not None and after.queue.reserved is not None
    return rush and not reserves and changed <= _LEAVING | {"queue"}


def _is_passing(before: GPUJobStatus, *, after: GPUJobStatus) -> bool:
    if after.phase not in {"Starting", "Running"} or not {before.reason, after.reason} <= _PASSING_REASONS:
        return False
    return _lasting(before.conditions) == _lasting(after.conditions)


def _lasting(conditions: list[Condition]) -> list[Condition]:
    return [each for each in conditions if each.type not in _PASSING_CONDITIONS]


def _came_up_to_its_promise(before: GPUJobStatus, *, after: GPUJobStatus) -> bool:
    """Whether the job's memory entry has changed in more than the measured peak."""
    if before.memory is None or after.memory is None:
        return after.memory is not None and after.memory.limited
    return msgspec.structs.replace(after.memory, peak_mib=before.memory.peak_mib) != before.memory
