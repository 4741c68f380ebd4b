"""What was learned of missed estimates as text: what an operator continues with, and what dry runs answer by.

Pure. It is in the ConfigMap `names.ESTIMATES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.queue.estimates.calibration import Factors, Held, Misses

_FACTORS: Final = "factors"
_SHIFT: Final = "shift"
_HELD: Final = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The factors that were learned, and how often the bounds held."""

    factors: Factors
    held: Held


def data_of(misses: Misses) -> dict[str, str]:
    """What was learned, as the data of the ConfigMap have it."""
    factors, held = misses.factors, misses.held
    return {
        _FACTORS: f"{factors.early:.4f} {factors.late:.4f}",
        _SHIFT: f"{factors.shift:.4f}",
        _HELD: f"{held.jobs} {held.within:.2f}",
    }


def calibration_in(data: Mapping[str, str]) -> Calibration | None:
    """What `data_of` wrote; None in data without it. Raises `ValueError` for other text."""
    if _FACTORS not in data:
        return None
    early, late = map(float, data[_FACTORS].split())
    jobs, within = data.get(_HELD, "").split()
    # An operator that learned no shift has written none.
    factors = Factors(early=early, late=late, shift=float(data.get(_SHIFT, "0")))
    return Calibration(factors=factors, held=Held(jobs=int(jobs), within=float(within)))
