"""How far estimates of starts are off: learned from those that came true, and told as bounds. Pure.

The bounds are meant to hold nine in ten starts. How far off the starts were is measured by the spread of what had been
foreseen, so that one that is easily foreseen has narrow bounds, and the shortest span that held enough of the latest
gives the next (conformal prediction: Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005): no
assumption is needed on why an estimate is off. How much is enough follows from how many of those told held (Gibbs,
Candes, Adaptive Conformal Inference Under Distribution Shift, 2021).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import ceil, exp, isfinite, log
from typing import Final

# Misses that are learned from: so many of the latest, so many of these that were foreseen most alike.
_REMEMBERED: Final = 400
_ALIKE: Final = 120
# With fewer misses than that the bounds are wide.
_ENOUGH: Final = 8
_BEFORE: Final = 2.0
# Of each job that waits so many estimates are noted, at least so far from each other.
_NOTED_OF_EACH: Final = 8
_LEAST_APART_SECONDS: Final = 30.0
_MINUTE: Final = 60.0
# The least spread of what is foreseen, by order of magnitude: plays that agree are not certain.
_LEAST_SPREAD: Final = 0.2
# The part that is looked for moves so far with each start that was outside its bounds, and nowhere else.
_STEP: Final = 0.02
_LEAST_PART: Final = 0.8
_MOST_PART: Final = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A start of a job of so many GPUs that is foreseen in `seconds`; hardly before `early_seconds` nor after
    `late_seconds`, as far as could be foreseen."""

    seconds: float
    early_seconds: float
    late_seconds: float
    gpus: float = 1.0

    def unlike(self, other: "Foreseen") -> float:
        """How unlike another it is, by orders of magnitude of wait and size."""
        return abs(_size(self.seconds) - _size(other.seconds)) + abs(log((self.gpus + 1.0) / (other.gpus + 1.0)))

    def off(self, waited_seconds: float) -> float:
        """How far off it was, by how far it may be: negative where the start was earlier."""
        by = _size(waited_seconds) - _size(self.seconds)
        return by / (self._before if by < 0 else self._after)

    def at(self, off: float) -> float:
        """The wait that is so far off."""
        return max(0.0, exp(_size(self.seconds) + off * (self._before if off < 0 else self._after)) - _MINUTE)

    @property
    def _before(self) -> float:
        return max(0.0, _size(self.seconds) - _size(self.early_seconds)) + _LEAST_SPREAD

    @property
    def _after(self) -> float:
        return max(0.0, _size(self.late_seconds) - _size(self.seconds)) + _LEAST_SPREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Nine in ten starts lie between these, in seconds from now."""

    earliest_seconds: float
    latest_seconds: float


class Misses:
    """By how much the starts were off that had been foreseen, and what that says of those foreseen alike.

    Learned from several estimates of each job, spread over its wait, so that the bounds hold whenever one is told.
    """

    def __init__(self, *, within: float = 0.9) -> None:
        self._within = within
        #: The part of the misses that the bounds span: what it takes for as many starts as is meant.
        self.part = within
        self._known: deque[tuple[Foreseen, float]] = deque(maxlen=_REMEMBERED)
        self._told: dict[str, list[tuple[float, Foreseen, Bounds]]] = {}

    def told(self, key: str, foreseen: Foreseen, *, now_seconds: float) -> Bounds:
        """The bounds of a job that waits. Noted whenever half of what was noted last has passed."""
        bounds, noted = self.bounds(foreseen), self._told.setdefault(key, [])
        if not noted or now_seconds - noted[-1][0] >= max(_LEAST_APART_SECONDS, noted[-1][1].seconds / 2):
            noted.append((now_seconds, foreseen, bounds))
            del noted[:-_NOTED_OF_EACH]
        return bounds

    def started(self, key: str, *, now_seconds: float) -> None:
        """The job has started."""
        told = self._told.pop(key, ())
        for at_seconds, foreseen, bounds in told:
            waited = max(0.0, now_seconds - at_seconds)
            self._known.append((foreseen, foreseen.off(waited)))
            held = bounds.earliest_seconds <= waited + 1 and waited <= bounds.latest_seconds + 1
            moved = self.part + _STEP * (self._within - held) / len(told)
            self.part = min(_MOST_PART, max(_LEAST_PART, moved))

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._told.pop(key, None)

    def bounds(self, foreseen: Foreseen) -> Bounds:
        """Between which times it starts, as those foreseen most alike did."""
        alike = nsmallest(_ALIKE, self._known, key=lambda known: foreseen.unlike(known[0]))
        low, high = _shortest(sorted(off for _, off in alike), part=self.part, of=foreseen)
        return Bounds(
            earliest_seconds=min(foreseen.at(low), foreseen.seconds),
            latest_seconds=max(foreseen.at(high), foreseen.seconds),
        )

    @property
    def lasting(self) -> list[list[float]]:
        """What was learned, as plain numbers, the oldest first."""
        return [
            [round(each, 3) for each in (seen.seconds, seen.early_seconds, seen.late_seconds, seen.gpus, off)]
            for seen, off in self._known
        ]

    def restore(self, rows: Iterable[Sequence[float]]) -> None:
        """Begin with what had been learned before. Raises `ValueError` for what cannot have been."""
        found = []
        for row in rows:
            if len(row) != 5 or not all(isfinite(each) for each in row) or min(row[:4]) < 0:
                message = f"a miss is five finite numbers of which four are not negative, not {list(row)}"
                raise ValueError(message)
            seconds, early, late, gpus, off = row
            seen = Foreseen(seconds=seconds, early_seconds=early, late_seconds=late, gpus=gpus)
            found.append((seen, off))
        self._known.extend(found)


def _size(seconds: float) -> float:
    # A minute off is not much of a short wait.
    return log(seconds + _MINUTE)


def _shortest(ordered: Sequence[float], *, part: float, of: Foreseen) -> tuple[float, float]:
    """The shortest span with that part of the values, one more than seen being in the part with the same chance."""
    if len(ordered) < _ENOUGH:
        return -_BEFORE, _BEFORE
    needed = min(len(ordered), ceil((len(ordered) + 1) * part))
    waits = [of.at(off) for off in ordered]
    first = min(range(len(ordered) - needed + 1), key=lambda at: waits[at + needed - 1] - waits[at])
    return ordered[first], ordered[first + needed - 1]
