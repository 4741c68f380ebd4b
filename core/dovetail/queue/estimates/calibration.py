"""How far estimates of starts are off: learned from those that came true, and told as bounds. Pure.

The bounds are meant to hold nine in ten starts. They follow the span of the futures that were played, made wider or
narrower by one factor to each side. Where a start came, in parts of that span, is noted of the latest jobs that have
started; the factors leave out the few that came earliest and latest of them (split conformal prediction, on a window:
Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005).
"""

from collections import deque
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Final

# What is left out of those that came before. Less than one in ten: a job that waits long tells of itself late, so that
# what is learned lags behind.
_OUTSIDE: Final = 0.07
# So many are remembered. At first there are as many as these in their stead, spread evenly, which end at the factors.
_REMEMBERED: Final = 1_000
_BEFORE_JOBS: Final = 20.0
# Where the factors begin, and what they can be.
_BEFORE: Final = 1.3
_LEAST: Final = 0.1
_MOST: Final = 8.0
# Of each job that waits so many estimates are noted, at least so far from each other.
_NOTED_OF_EACH: Final = 8
_LEAST_APART_SECONDS: Final = 30.0
_MINUTE: Final = 60.0
# The least span of what is foreseen to each side, in orders of magnitude: plays that agree are not certain.
_LEAST_SPAN: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A start that is foreseen in `seconds`, and in nine of ten futures between `early_seconds` and `late_seconds`."""

    seconds: float
    early_seconds: float
    late_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Nine in ten starts lie between these, in seconds from now."""

    earliest_seconds: float
    latest_seconds: float

    def hold(self, waited_seconds: float) -> bool:
        """Whether the start was within, to the second."""
        return self.earliest_seconds - 1 <= waited_seconds <= self.latest_seconds + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """By how much the span of the futures is made wider to each side. Raises `ValueError` for what cannot have been."""

    early: float = _BEFORE
    late: float = _BEFORE

    def __post_init__(self) -> None:
        for factor in (self.early, self.late):
            if not (isfinite(factor) and _LEAST <= factor <= _MOST):
                message = f"a factor is a number from {_LEAST} to {_MOST}, not {factor}"
                raise ValueError(message)


class Misses:
    """Where starts came, and what that makes of the next bounds.

    Learned from several estimates of each job, spread over its wait, so that the bounds hold whenever one is told. Each
    job weighs one.
    """

    def __init__(self) -> None:
        self._before = Factors()
        self._came: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        self._factors: Factors | None = None
        self._told: dict[str, list[tuple[float, Foreseen]]] = {}

    @property
    def factors(self) -> Factors:
        """All that is learned."""
        if self._factors is None:
            self._factors = self._reckoned()
        return self._factors

    def restore(self, factors: Factors) -> None:
        """Begin with what had been learned before."""
        self._before, self._factors = factors, None

    def told(self, key: str, foreseen: Foreseen, *, now_seconds: float) -> Bounds:
        """The bounds of a job that waits. Noted whenever half of what was noted last has passed."""
        noted = self._told.setdefault(key, [])
        if not noted or now_seconds - noted[-1][0] >= max(_LEAST_APART_SECONDS, noted[-1][1].seconds / 2):
            noted.append((now_seconds, foreseen))
            del noted[:-_NOTED_OF_EACH]
        return self.bounds(foreseen)

    def started(self, key: str, *, now_seconds: float) -> None:
        """The job has started: that is where it came."""
        noted = self._told.pop(key, ())
        for at_seconds, foreseen in noted:
            self._came.append((_where(foreseen, max(0.0, now_seconds - at_seconds)), 1 / len(noted)))
            self._factors = None

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._told.pop(key, None)

    def bounds(self, foreseen: Foreseen) -> Bounds:
        """Between which times it starts."""
        middle, (before, after), factors = _size(foreseen.seconds), _span(foreseen), self.factors
        return Bounds(
            earliest_seconds=max(0.0, exp(middle - factors.early * before) - _MINUTE),
            latest_seconds=exp(middle + factors.late * after) - _MINUTE,
        )

    def _reckoned(self) -> Factors:
        """What leaves out half of `_OUTSIDE` at each side."""
        if not self._came:
            return self._before
        came = sorted(self._came)
        early = _left_out([(-where, weight) for where, weight in reversed(came)], before=self._before.early)
        late = _left_out(came, before=self._before.late)
        return Factors(early=min(_MOST, max(_LEAST, early)), late=min(_MOST, max(_LEAST, late)))


def _left_out(came: list[tuple[float, float]], *, before: float) -> float:
    """Above which no more lies than half of `_OUTSIDE`, of those that came, in order, and those in their stead."""
    in_all = sum(weight for _, weight in came) + _BEFORE_JOBS
    within = (1 - _OUTSIDE / 2) * in_all
    # Spread evenly, so that what is beyond the factor that is begun with is as much as is to be left out.
    end = before / (1 - _OUTSIDE)

    def stead(where: float) -> float:
        return _BEFORE_JOBS * min(1.0, max(0.0, (where + end) / (2 * end)))

    below = 0.0
    for where, weight in came:
        if stead(where) >= within - below:
            break
        below += weight
        if below + stead(where) >= within:
            return where
    # Between two that came those in their stead decide.
    return ((within - below) / _BEFORE_JOBS * 2 - 1) * end


def _where(foreseen: Foreseen, waited_seconds: float) -> float:
    """Where in the span a start came: 0 in its midst, -1 and 1 at its ends."""
    off, (before, after) = _size(waited_seconds) - _size(foreseen.seconds), _span(foreseen)
    return off / (after if off > 0 else before)


def _span(foreseen: Foreseen) -> tuple[float, float]:
    """How far what is foreseen reaches to each side, in orders of magnitude."""
    middle = _size(foreseen.seconds)
    before = max(0.0, middle - _size(foreseen.early_seconds)) + _LEAST_SPAN
    return before, max(0.0, _size(foreseen.late_seconds) - middle) + _LEAST_SPAN


def _size(seconds: float) -> float:
    # A minute off is not much of a short wait.
    return log(seconds + _MINUTE)
