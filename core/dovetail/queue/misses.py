"""How far estimates of starts are off: learned from those that came true, and told as bounds. Pure.

The bounds are meant to hold nine in ten starts. They follow the span of the futures that were played, made wider or
narrower by one factor: it grows with each start that was outside its bounds and shrinks with each that was within, so
that in the long run as many are within as is meant, whatever the reason why estimates are off (Gibbs, Candes, Adaptive
Conformal Inference Under Distribution Shift, 2021).
"""

from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Final

# How fast the factor follows, where it begins, and what it can be.
_STEP: Final = 0.2
_BEFORE: Final = 1.3
_LEAST: Final = 0.2
_MOST: Final = 6.0
# Of each job that waits so many estimates are noted, at least so far from each other.
_NOTED_OF_EACH: Final = 8
_LEAST_APART_SECONDS: Final = 30.0
_MINUTE: Final = 60.0
# The least span of what is foreseen to each side, in orders of magnitude: plays that agree are not certain.
_LEAST_SPAN: Final = 0.1


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


class Misses:
    """How often starts were outside their bounds, and what that makes of the next.

    Learned from several estimates of each job, spread over its wait, so that the bounds hold whenever one is told.
    """

    def __init__(self, *, within: float = 0.9, factor: float = _BEFORE) -> None:
        self._within = within
        self._factor = factor
        self._told: dict[str, list[tuple[float, Foreseen]]] = {}

    @property
    def factor(self) -> float:
        """By how much the span of the futures is made wider; all that is learned."""
        return self._factor

    def restore(self, factor: float) -> None:
        """Begin with what had been learned before. Raises `ValueError` for what cannot have been."""
        if not (isfinite(factor) and _LEAST <= factor <= _MOST):
            message = f"the factor is a number from {_LEAST} to {_MOST}, not {factor}"
            raise ValueError(message)
        self._factor = factor

    def told(self, key: str, foreseen: Foreseen, *, now_seconds: float) -> Bounds:
        """The bounds of a job that waits. Noted whenever half of what was noted last has passed."""
        noted = self._told.setdefault(key, [])
        if not noted or now_seconds - noted[-1][0] >= max(_LEAST_APART_SECONDS, noted[-1][1].seconds / 2):
            noted.append((now_seconds, foreseen))
            del noted[:-_NOTED_OF_EACH]
        return self.bounds(foreseen)

    def started(self, key: str, *, now_seconds: float) -> None:
        """The job has started: as the bounds would be told now, they would have held or not."""
        for at_seconds, foreseen in self._told.pop(key, ()):
            outside = not self.bounds(foreseen).hold(max(0.0, now_seconds - at_seconds))
            moved = self._factor * exp(_STEP * (outside - (1.0 - self._within)))
            self._factor = min(_MOST, max(_LEAST, moved))

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._told.pop(key, None)

    def bounds(self, foreseen: Foreseen) -> Bounds:
        """Between which times it starts."""
        middle = _size(foreseen.seconds)
        before = max(0.0, middle - _size(foreseen.early_seconds)) + _LEAST_SPAN
        after = max(0.0, _size(foreseen.late_seconds) - middle) + _LEAST_SPAN
        return Bounds(
            earliest_seconds=max(0.0, exp(middle - self._factor * before) - _MINUTE),
            latest_seconds=exp(middle + self._factor * after) - _MINUTE,
        )


def _size(seconds: float) -> float:
    # A minute off is not much of a short wait.
    return log(seconds + _MINUTE)
