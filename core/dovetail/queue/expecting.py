"""How long jobs really run, and how far estimates are off: learned from what has ended and started. Pure.

Users ask for more time than they need. How much of its limit a job uses is learned from those that have ended, of the
same group first (who submits, and how large), of all others else. How far the starts that were foreseen so were off is
learned too, and gives the bounds between which nine in ten starts lie (conformal prediction: Vovk, Gammerman, Shafer,
Algorithmic Learning in a Random World, 2005): they need no assumption on why an estimate is off. In a long queue misses
come together, and are learned of late: so the bounds also reach from where all jobs use little to where all use much.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import ceil, log
from typing import Final

# What is learned from: the latest of each group.
_REMEMBERED: Final = 200
# A group that knows less is not asked.
_ENOUGH: Final = 8
# Before anything is known: most jobs use less than their limit.
_BEFORE: Final = 0.5
_LEAST: Final = 0.02
# Those that use little of their limits, and those that use much.
_EARLY: Final = 0.15
_LATE: Final = 0.85
# Misses that are learned from: so many of the latest, so many of these that were foreseen most alike.
_REMEMBERED_MISSES: Final = 400
_ALIKE: Final = 80
# Of each job that waits so many estimates are noted, at least so far from each other.
_NOTED_OF_EACH: Final = 8
_LEAST_APART_SECONDS: Final = 30.0
_MINUTE: Final = 60.0


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

    def range_seconds(
        self, group: str, *, limit_seconds: float, so_far_seconds: float = 0.0
    ) -> tuple[float, float] | None:
        """The same for those that end early and for those that end late; None where too little is known."""
        if not self.knows(group):
            return None
        early, late = (
            self.expected_seconds(group, limit_seconds=limit_seconds, so_far_seconds=so_far_seconds, part=part)
            for part in (_EARLY, _LATE)
        )
        return early, late


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A start of a job of so many GPUs that is foreseen in `seconds`.

    In `early_seconds` if all jobs use little of their limits, in `late_seconds` if all use much.
    """

    seconds: float
    early_seconds: float
    late_seconds: float
    gpus: float = 1.0

    def unlike(self, other: "Foreseen") -> float:
        """How unlike another it is, by orders of magnitude of wait and size."""
        return abs(log(_by_minutes(self.seconds) / _by_minutes(other.seconds))) + abs(
            log((self.gpus + 1.0) / (other.gpus + 1.0))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Nine in ten starts lie between these, in seconds from now."""

    earliest_seconds: float
    latest_seconds: float


class Misses:
    """By which factor the waits were off that had been foreseen, and what that says of those foreseen alike.

    Learned from several estimates of each job, spread over its wait, so that the bounds hold whenever one is told.
    """

    def __init__(self, *, within: float = 0.9) -> None:
        self._within = within
        self._factors: deque[tuple[Foreseen, float]] = deque(maxlen=_REMEMBERED_MISSES)
        self._told: dict[str, list[tuple[float, Foreseen]]] = {}

    def told(self, key: str, foreseen: Foreseen, *, now_seconds: float) -> None:
        """A job that waits was told that. Noted whenever half of what was noted last has passed."""
        noted = self._told.setdefault(key, [])
        if not noted or now_seconds - noted[-1][0] >= max(_LEAST_APART_SECONDS, noted[-1][1].seconds / 2):
            noted.append((now_seconds, foreseen))
            del noted[:-_NOTED_OF_EACH]

    def started(self, key: str, *, now_seconds: float) -> None:
        """The job has started."""
        for at_seconds, foreseen in self._told.pop(key, ()):
            waited = max(0.0, now_seconds - at_seconds)
            self._factors.append((foreseen, _by_minutes(waited) / _by_minutes(foreseen.seconds)))

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._told.pop(key, None)

    def bounds(self, foreseen: Foreseen) -> Bounds:
        """Between which times it starts: as those foreseen most alike did, and at least from early to late."""
        alike = nsmallest(_ALIKE, self._factors, key=lambda known: foreseen.unlike(known[0]))
        low, high = _shortest(sorted(factor for _, factor in alike), within=self._within)
        minutes = _by_minutes(foreseen.seconds)
        return Bounds(
            earliest_seconds=max(0.0, min(low * minutes - _MINUTE, foreseen.seconds, foreseen.early_seconds)),
            latest_seconds=max(high * minutes - _MINUTE, foreseen.seconds, foreseen.late_seconds),
        )


def _by_minutes(seconds: float) -> float:
    # A minute off is no large factor of a short wait.
    return seconds + _MINUTE


def _shortest(ordered: Sequence[float], *, within: float) -> tuple[float, float]:
    """The shortest span with that part of the values, one more than seen being in the part with the same chance."""
    if len(ordered) < _ENOUGH:
        return 0.0, 1.25
    needed = min(len(ordered), ceil((len(ordered) + 1) * within))
    first = min(range(len(ordered) - needed + 1), key=lambda at: ordered[at + needed - 1] - ordered[at])
    return ordered[first], ordered[first + needed - 1]
