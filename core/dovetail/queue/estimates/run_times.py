"""How long jobs really run, learned from those that have ended. Pure.

Users request more time than they need. The part of its limit that a job uses is learned from ended jobs: from the most
similar group that has enough of them, otherwise from all jobs.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

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

    def quantile(self, part: float, *, above: float = float("-inf")) -> float | None:
        """The quantile `part`, 0 to 1, of the values from `above` on; None without any."""
        first = bisect_left(self._sorted, above)
        left = len(self._sorted) - first
        if not left:
            return None
        return self._sorted[first + min(left - 1, int(part * left))]


class RunTimesUsed:
    """The part of its time limit that a job uses.

    Groups of a job are ordered from the most similar to the widest.
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

    def knows(self, groups: Sequence[str]) -> bool:
        """Whether enough jobs have ended for an estimate."""
        return self._known(groups) is not None

    def expected_seconds(
        self, groups: Sequence[str], *, limit_seconds: float, so_far_seconds: float = 0.0, part: float = 0.5
    ) -> float:
        """The expected run time in seconds, in total, of a job that has run `so_far_seconds`.

        It is the quantile `part` of similar jobs.
        """
        so_far = min(1.0, so_far_seconds / limit_seconds)
        known = self._known(groups)
        used = None if known is None else known.quantile(part, above=so_far)
        if used is None:
            # It has run longer than all others, or there are none: it may end at any time until its limit.
            used = max(_BEFORE, so_far + part * (1.0 - so_far))
        return limit_seconds * max(used, so_far, _LEAST)

    def range_seconds(
        self, groups: tuple[str, ...], *, limit_seconds: float, so_far_seconds: float = 0.0
    ) -> tuple[float, ...] | None:
        """The same for each of `PARTS`, in seconds; None where too little is known."""
        if not self.knows(groups):
            return None
        found = None if so_far_seconds else self._reckoned.get((groups, limit_seconds))
        if found is None:
            found = tuple(
                self.expected_seconds(groups, limit_seconds=limit_seconds, so_far_seconds=so_far_seconds, part=part)
                for part in PARTS
            )
        if not so_far_seconds:
            # Cached: thousands of similar jobs wait, and each cycle asks for all of them.
            self._reckoned[groups, limit_seconds] = found
        return found

    def _known(self, groups: Sequence[str]) -> _Latest | None:
        """The most similar group of which enough jobs have ended."""
        for group in groups:
            known = self._of_group.get(group)
            if known is not None and len(known) >= _ENOUGH:
                return known
        return self._of_all if len(self._of_all) >= _ENOUGH else None
