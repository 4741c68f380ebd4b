"""When news of a job is written: at once where it matters, together with what follows where it does not. No I/O.

Each write of a status costs the API server and all who watch more than anything else that is done for a job. What a job
passes through between its admission and the start of its last worker, and figures that change all the time, are
therefore held back for a while; a phase, a plan or a reason to wait never is.
"""

import zlib
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.meta import Condition

# The figures of all running jobs are refreshed in turn: so many writes a second are spent on them in all.
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
    """For how long the figures of each of so many running jobs stand at least."""
    return max(_FIGURES_SECONDS, running / _REFRESHES_PER_SECOND)


class Pacing:
    """Decides which news may wait. Times are in seconds of a clock that only goes on."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def wait_seconds(self, uid: str, *, before: GPUJobStatus, after: GPUJobStatus, running: int, now: float) -> float:
        """How long the status `after` of that job may still wait; 0 for one that has to be written now.

        `running` says how many jobs run, since all of them change their figures.
        """
        changed = _changed(before, after)
        if not changed or not changed <= _ON_THE_WAY or _came_up_to_its_promise(before, after):
            return 0.0
        if changed <= _FIGURES:
            patience = refresh_seconds(running=running)
            return max(0.0, self._written.setdefault(uid, now - _part_of(uid) * patience) + patience - now)
        if not _is_passing(before, after):
            return 0.0
        return max(0.0, self._since.setdefault(uid, now) + _PASSING_SECONDS - now)

    def written(self, uid: str, *, now: float) -> None:
        """The job's status was written."""
        self._written[uid] = now
        self._since.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._written.pop(uid, None)
        self._since.pop(uid, None)


def _part_of(uid: str) -> float:
    """Where between 0 and 1 a job's turn is that was not written since we began: not all come at the same time."""
    return zlib.crc32(uid.encode()) / 2**32


def _changed(before: GPUJobStatus, after: GPUJobStatus) -> set[str]:
    return {name for name in after.__struct_fields__ if getattr(before, name) != getattr(after, name)}


def _is_passing(before: GPUJobStatus, after: GPUJobStatus) -> bool:
    if after.phase not in {"Starting", "Running"} or not {before.reason, after.reason} <= _PASSING_REASONS:
        return False
    return _lasting(before.conditions) == _lasting(after.conditions)


def _lasting(conditions: list[Condition]) -> list[Condition]:
    return [each for each in conditions if each.type not in _PASSING_CONDITIONS]


def _came_up_to_its_promise(before: GPUJobStatus, after: GPUJobStatus) -> bool:
    """Whether more than the measured peak is news of the job's memory."""
    if before.memory is None or after.memory is None:
        return after.memory is not None and after.memory.limited
    return msgspec.structs.replace(after.memory, peak_mib=before.memory.peak_mib) != before.memory
