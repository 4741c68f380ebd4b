"""How long jobs really run, and how far estimates are off: learned from what has ended and started. Pure.

Users ask for more time than they need. How much of its limit a job uses is learned from those that have ended, of the
same group first (who submits, and how large), of all others else. How far the starts that were foreseen so were off is
learned too, and gives the bounds between which nine in ten starts lie (conformal prediction: Vovk, Gammerman, Shafer,
Algorithmic Learning in a Random World, 2005): they need no assumption on why an estimate is off.
"""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Final

# What is learned from: the latest of each group.
_REMEMBERED: Final = 200
# A group that knows less is not asked.
_ENOUGH: Final = 8
# Before anything is known: most jobs use less than their limit.
_BEFORE: Final = 0.5
_LEAST: Final = 0.02


class _Latest:
    """The latest values, in order of size."""

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

    def quantile(self, part: float, *, above: float = float("-inf")) -> float | None:
        """The value below which that part lies of those `above`; None without any."""
        first = bisect_left(self._sorted, above)
        left = len(self._sorted) - first
        if not left:
            return None
        return self._sorted[first + min(left - 1, int(part * left))]


class RunTimesUsed:
    """Which part of its time limit a job uses, by group."""

    def __init__(self) -> None:
        self._of_all = _Latest()
        self._of_group: dict[str, _Latest] = {}

    def ended(self, group: str, *, ran_seconds: float, limit_seconds: float) -> None:
        """A job of the group has ended by itself."""
        used = min(1.0, ran_seconds / limit_seconds)
        self._of_all.add(used)
        self._of_group.setdefault(group, _Latest()).add(used)

    def knows(self, group: str) -> bool:
        """Whether enough jobs have ended to tell."""
        return max(len(self._of_all), len(self._of_group.get(group, ()))) >= _ENOUGH

    def expected_seconds(
        self, group: str, *, limit_seconds: float, so_far_seconds: float = 0.0, part: float = 0.5
    ) -> float:
        """How long a job runs that has run `so_far_seconds`: by then this `part` of those like it have ended."""
        so_far = min(1.0, so_far_seconds / limit_seconds)
        known = self._of_group.get(group)
        if known is None or len(known) < _ENOUGH:
            known = self._of_all
        used = known.quantile(part, above=so_far) if len(known) >= _ENOUGH else None
        if used is None:
            used = max(_BEFORE, (1.0 + so_far) / 2)
        return limit_seconds * max(used, so_far, _LEAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Nine in ten starts lie between these, in seconds from now."""

    earliest_seconds: float
    latest_seconds: float


class Misses:
    """By which factor waits were off that had been foreseen, by how long they were foreseen to be."""

    # What is learned for one order of magnitude is not true of another.
    _STEPS: Final = (600.0, 3600.0, 6 * 3600.0, 24 * 3600.0)

    def __init__(self, *, within: float = 0.9) -> None:
        self._tail = (1.0 - within) / 2
        self._factors = [_Latest() for _ in range(len(self._STEPS) + 1)]

    def started(self, *, foreseen_seconds: float, waited_seconds: float) -> None:
        """A job started after a wait that had been foreseen otherwise, both from the same moment on."""
        self._of(foreseen_seconds).add((waited_seconds + 1.0) / (foreseen_seconds + 1.0))

    def bounds(self, foreseen_seconds: float) -> Bounds:
        """Between which times a job starts that is foreseen to wait so long."""
        known = self._of(foreseen_seconds)
        low, high = known.quantile(self._tail), known.quantile(1.0 - self._tail)
        if len(known) < _ENOUGH or low is None or high is None:
            low, high = 0.0, 1.25
        wait = foreseen_seconds + 1.0
        return Bounds(earliest_seconds=max(0.0, low * wait - 1.0), latest_seconds=max(0.0, high * wait - 1.0))

    def _of(self, foreseen_seconds: float) -> _Latest:
        return self._factors[bisect_left(self._STEPS, foreseen_seconds)]
