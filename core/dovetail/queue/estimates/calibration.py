"""Error bounds for estimated starts, learned from the estimates of jobs that have started.

Pure.

The bounds are to hold for nine of ten starts. They take the span of the simulated futures and widen or narrow it by one
factor for each side. For the latest jobs that started, the position of the start within the span is recorded. The
factors leave out the few earliest and latest of these (split conformal prediction, on a window: Vovk, Gammerman,
Shafer, Algorithmic Learning in a Random World, 2005).

The estimate between the bounds is moved by the median of how much longer jobs waited than was foreseen: the simulated
futures lack the jobs of equal priority that arrive and are backfilled.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Final, NamedTuple

# The share of recorded starts outside the bounds. It is below one in ten because a job that waits long is recorded
# late, so that the factors lag behind.
_OUTSIDE: Final = 0.07
# The number of starts that are remembered. At first, the weight of `_BEFORE_JOBS` evenly spread placeholders replaces
# them; their spread ends at the initial factors.
_REMEMBERED: Final = 1_000
_BEFORE_JOBS: Final = 20.0
# The same for the shift: few, because it is wrong from the first job on where it is wrong at all.
_BEFORE_JOBS_OF_SHIFT: Final = 5.0
_MOST_SHIFT: Final = 2.0
# The initial factors, and their limits.
_BEFORE: Final = 1.3
_LEAST: Final = 0.1
_MOST: Final = 8.0
# Below this number of starts, the reached level is not stated.
_LEAST_STARTS: Final = 20
# The starts of an earlier operator count as so many at most, so that its level does not outlast those of today.
_MOST_RESTORED: Final = 200
# The keys of what was learned, in the ConfigMap `names.ESTIMATES`.
_KEY_FACTORS: Final = "factors"
_KEY_SHIFT: Final = "shift"
_KEY_HELD: Final = "held"
# Each waiting job contributes so many estimates, at least so far apart.
_NOTED_OF_EACH: Final = 8
_LEAST_APART_SECONDS: Final = 30.0
_MINUTE: Final = 60.0
# The least span of an estimate to each side, on the log scale: futures that agree are not certain.
_LEAST_SPAN: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """An estimated start, in seconds from now.

    In nine of ten futures it lies between `early_seconds` and `late_seconds`.
    """

    seconds: float
    early_seconds: float
    late_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds between which nine of ten starts lie, in seconds from now."""

    earliest_seconds: float
    latest_seconds: float

    def hold(self, waited_seconds: float) -> bool:
        """Whether the start was within the bounds, to the second."""
        return self.earliest_seconds - 1 <= waited_seconds <= self.latest_seconds + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The factors that widen the span of the futures to each side, and how much longer jobs wait than is foreseen.

    The `shift` is on the log scale. Raises `ValueError` for a value out of range.
    """

    early: float = _BEFORE
    late: float = _BEFORE
    shift: float = 0.0

    def __post_init__(self) -> None:
        for factor in (self.early, self.late):
            if not (isfinite(factor) and _LEAST <= factor <= _MOST):
                message = f"a factor is a number from {_LEAST} to {_MOST}, not {factor}"
                raise ValueError(message)
        if not abs(self.shift) <= _MOST_SHIFT:
            message = f"a shift is a number from -{_MOST_SHIFT} to {_MOST_SHIFT}, not {self.shift}"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How many of the latest jobs started between the bounds that their statuses showed.

    `within` is a sum of parts: of a job with several estimates, the part of them whose bounds held. Raises `ValueError`
    for values out of range.
    """

    jobs: int = 0
    within: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.within) and 0 <= self.within <= self.jobs):
            message = f"of {self.jobs} jobs, 0 to {self.jobs} started within their bounds, not {self.within}"
            raise ValueError(message)

    @property
    def level(self) -> float | None:
        """The part of the jobs that started within their bounds, 0 to 1; None if they are too few to say."""
        return round(self.within / self.jobs, 2) if self.jobs >= _LEAST_STARTS else None


class _Noted(NamedTuple):
    """An estimate of a waiting job."""

    at_seconds: float
    foreseen: Foreseen
    bounds: Bounds


class Misses:
    """Where starts fell within their spans, and the bounds that follow from that.

    Several estimates of each job are recorded, spread over its wait, so that the bounds hold for an estimate at any
    time. Each job has a weight of one.
    """

    def __init__(self) -> None:
        self._before = Factors()
        self._came: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        self._longer: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        self._factors: Factors | None = None
        self._held_before = Held()
        self._held: deque[float] = deque(maxlen=_REMEMBERED)
        self._noted: dict[str, list[_Noted]] = {}

    @property
    def factors(self) -> Factors:
        """The factors that have been learned so far."""
        if self._factors is None:
            self._factors = self._compute_factors()
        return self._factors

    @property
    def held(self) -> Held:
        """How often the bounds have held so far."""
        before = self._held_before
        return Held(jobs=before.jobs + len(self._held), within=before.within + sum(self._held))

    def restore(self, factors: Factors, *, held: Held) -> None:
        """Begin with what was learned earlier."""
        self._before, self._factors = factors, None
        part = min(1.0, _MOST_RESTORED / max(1, held.jobs))
        self._held_before = Held(jobs=int(held.jobs * part), within=min(int(held.jobs * part), held.within * part))

    def bounds_of(self, key: str, *, foreseen: Foreseen, now_seconds: float) -> Bounds:
        """The bounds of a waiting job.

        Records the estimate once half of the last recorded wait has passed.
        """
        noted, bounds = self._noted.setdefault(key, []), self.bounds(foreseen)
        if not noted or now_seconds - noted[-1].at_seconds >= max(_LEAST_APART_SECONDS, noted[-1].foreseen.seconds / 2):
            noted.append(_Noted(now_seconds, foreseen, bounds))
            del noted[:-_NOTED_OF_EACH]
        return bounds

    def started(self, key: str, *, now_seconds: float) -> None:
        """Record when the job started."""
        noted, within = self._noted.pop(key, ()), 0.0
        for at_seconds, foreseen, bounds in noted:
            waited_seconds, weight = max(0.0, now_seconds - at_seconds), 1 / len(noted)
            self._came.append((_where(foreseen, waited_seconds=waited_seconds), weight))
            self._longer.append((_size(waited_seconds) - _size(foreseen.seconds), weight))
            within += weight * bounds.hold(waited_seconds)
            self._factors = None
        if noted:
            self._held.append(min(1.0, within))

    def forget(self, key: str) -> None:
        """Drop a job that was deleted."""
        self._noted.pop(key, None)

    def bounds(self, foreseen: Foreseen) -> Bounds:
        """The times between which it starts."""
        middle, (before, after), factors = _size(foreseen.seconds), _span(foreseen), self.factors
        return Bounds(
            earliest_seconds=max(0.0, exp(middle - factors.early * before) - _MINUTE),
            latest_seconds=exp(middle + factors.late * after) - _MINUTE,
        )

    def expected_seconds(self, foreseen: Foreseen) -> float:
        """The estimate within its bounds, moved by what was learned of earlier ones."""
        shifted, bounds = exp(_size(foreseen.seconds) + self.factors.shift) - _MINUTE, self.bounds(foreseen)
        return min(max(shifted, bounds.earliest_seconds), bounds.latest_seconds)

    def _compute_factors(self) -> Factors:
        """The factors that leave out half of `_OUTSIDE` on each side, and the median shift."""
        if not self._came:
            return self._before
        came = sorted(self._came)
        early = _left_out([(-where, weight) for where, weight in reversed(came)], before=self._before.early)
        late = _left_out(came, before=self._before.late)
        shift = _median([*self._longer, (self._before.shift, _BEFORE_JOBS_OF_SHIFT)])
        return Factors(
            early=min(_MOST, max(_LEAST, early)),
            late=min(_MOST, max(_LEAST, late)),
            shift=min(_MOST_SHIFT, max(-_MOST_SHIFT, shift)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was learned of missed estimates: an operator goes on with it, and dry runs answer by it."""

    factors: Factors
    held: Held


def data_of(misses: Misses) -> dict[str, str]:
    """What was learned, as the data of the ConfigMap have it."""
    factors, held = misses.factors, misses.held
    return {
        _KEY_FACTORS: f"{factors.early:.4f} {factors.late:.4f}",
        _KEY_SHIFT: f"{factors.shift:.4f}",
        _KEY_HELD: f"{held.jobs} {held.within:.2f}",
    }


def calibration_in(data: Mapping[str, str]) -> Calibration | None:
    """What `data_of` wrote; None in data without it. Raises `ValueError` for other text."""
    if _KEY_FACTORS not in data:
        return None
    early, late = map(float, data[_KEY_FACTORS].split())
    jobs, within = data.get(_KEY_HELD, "").split()
    # An operator that learned no shift has written none.
    factors = Factors(early=early, late=late, shift=float(data.get(_KEY_SHIFT, "0")))
    return Calibration(factors=factors, held=Held(jobs=int(jobs), within=float(within)))


def _median(weighted: list[tuple[float, float]]) -> float:
    """The median of values with weights."""
    half, below = sum(weight for _, weight in weighted) / 2, 0.0
    for value, weight in sorted(weighted):
        below += weight
        if below >= half:
            return value
    return 0.0


def _left_out(came: list[tuple[float, float]], *, before: float) -> float:
    """The value above which half of `_OUTSIDE` lies, of the sorted starts and the placeholders."""
    in_all = sum(weight for _, weight in came) + _BEFORE_JOBS
    within = (1 - _OUTSIDE / 2) * in_all
    # The placeholders are spread evenly, so that their share beyond the initial factor is the share to leave out.
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
    # Between two recorded starts the placeholders decide.
    return ((within - below) / _BEFORE_JOBS * 2 - 1) * end


def _where(foreseen: Foreseen, *, waited_seconds: float) -> float:
    """The position of a start in the span: 0 in its middle, -1 and 1 at its ends."""
    off, (before, after) = _size(waited_seconds) - _size(foreseen.seconds), _span(foreseen)
    return off / (after if off > 0 else before)


def _span(foreseen: Foreseen) -> tuple[float, float]:
    """How far the estimate reaches to each side, on the log scale."""
    middle = _size(foreseen.seconds)
    before = max(0.0, middle - _size(foreseen.early_seconds)) + _LEAST_SPAN
    return before, max(0.0, _size(foreseen.late_seconds) - middle) + _LEAST_SPAN


def _size(seconds: float) -> float:
    # A minute more or less hardly matters for a short wait.
    return log(seconds + _MINUTE)
