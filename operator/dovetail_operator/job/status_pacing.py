"""When a status change is written: at once, or later together with the changes that follow.

No I/O.

A status write costs the API server and all watchers more than any other step for a job. Two kinds of change are
therefore delayed: states between admission and the start of the last worker, and figures that change constantly. A
phase, a plan or a reason to wait is never delayed.
"""

import zlib
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.meta import Condition

# The operator refreshes the figures of all running jobs in turn, with this many writes per second in total.
_REFRESHES_PER_SECOND: Final = 8
_FIGURES_SECONDS: Final = 10.0
_PASSING_SECONDS: Final = 1.0
_FIGURES: Final = frozenset({"elapsed", "measured", "memory"})
_ON_THE_WAY: Final = _FIGURES | {
    "reason", "message", "conditions", "workers_active", "workers_ready", "nodes", "node_list", "devices"
}  # fmt: skip
_PASSING_REASONS: Final = frozenset({"", "Evaluating", "ContainerCreating", "GangWaiting"})
_PASSING_CONDITIONS: Final = frozenset({"Enforced", "SuccessCriteriaMet"})


def refresh_seconds(*, running: int) -> float:
    """The shortest time in seconds between two refreshes of a running job's figures."""
    return max(_FIGURES_SECONDS, running / _REFRESHES_PER_SECOND)


class Pacing:
    """Decides which changes may wait. Times are in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def wait_seconds(self, uid: str, *, before: GPUJobStatus, after: GPUJobStatus, running: int, now: float) -> float:
        """How many seconds the status `after` may still wait; 0 if it has to be written now.

        `running` is the number of running jobs, which share the budget of refreshes.
        """
        changed = _changed(before, after=after)
        if not changed or not changed <= _ON_THE_WAY or _came_up_to_its_promise(before, after=after):
            return 0.0
        if changed <= _FIGURES:
            patience = refresh_seconds(running=running)
            return max(0.0, self._written.setdefault(uid, now - _part_of(uid) * patience) + patience - now)
        if not _is_passing(before, after=after):
            return 0.0
        return max(0.0, self._since.setdefault(uid, now) + _PASSING_SECONDS - now)

    def passing(self, uid: str, *, now: float) -> None:
        """Note that a state began whose write may wait, unless another began before it."""
        self._since.setdefault(uid, now)

    def written(self, uid: str, *, now: float) -> None:
        """Note that the job's status was written."""
        self._written[uid] = now
        self._since.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Drop a deleted job."""
        self._written.pop(uid, None)
        self._since.pop(uid, None)


def _part_of(uid: str) -> float:
    """A fraction between 0 and 1 that spreads the first refreshes after a restart over time."""
    return zlib.crc32(uid.encode()) / 2**32


def _changed(before: GPUJobStatus, *, after: GPUJobStatus) -> set[str]:
    return {name for name in after.__struct_fields__ if getattr(before, name) != getattr(after, name)}


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
