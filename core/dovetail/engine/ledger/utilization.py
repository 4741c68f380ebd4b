"""Utilization smoothed over time, device by device: a spike of one report steers nothing, a load that lasts does.

Agents publish on a change, so a report holds until the next one: between two of them the smoothed value runs towards
what was last reported, `s(t) = u + (s - u) * exp(-t / T)`, whether or not anybody looks. A new report has no weight in
the moment in which it comes. Times are seconds of one monotonic clock.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# What is shown moves in steps: finer ones would have every kept judgement of a node made anew, for nothing.
STEP: Final = 0.05
_CLOSE: Final = 0.01


class Loads:
    """Utilization of devices by row and slot. `seconds` is T, in which two thirds of a change come through."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.now: Floats = np.zeros((0, 0))
        self.shown: Floats = np.zeros((0, 0))
        self._smooth: Floats = np.zeros((0, 0))
        self._at: Floats = np.zeros(0)

    def grow(self, *, rows: int, devices: int) -> None:
        """Make room, and keep what is there."""
        height, width = self.now.shape
        more = ((0, rows - height), (0, devices - width))
        self.now, self.shown, self._smooth = (np.pad(each, more) for each in (self.now, self.shown, self._smooth))
        self._at = np.pad(self._at, (0, rows - height))

    def report(self, row: int, values: Sequence[float], *, at: float | None, anew: bool) -> None:
        """Take over what was reported of a row. With `anew`, or without a time, it counts in full at once."""
        reported = np.zeros(self.now.shape[1])
        reported[: len(values)] = values
        self._smooth[row] = reported if anew or at is None else self._smoothed(row, at=at)
        self._at[row] = 0.0 if at is None else at
        self.now[row] = reported
        self.shown[row] = self._smooth[row]

    def settle(self, at: float) -> list[int]:
        """Let what is shown follow the time; the rows where it changed."""
        rows = np.flatnonzero((self.now != self.shown).any(axis=1))
        smooth = self._smoothed(rows, at=at)
        smooth = np.where(np.abs(smooth - self.now[rows]) < _CLOSE, self.now[rows], smooth)
        arrived = smooth == self.now[rows]
        moved = (np.abs(smooth - self.shown[rows]) >= STEP) | (arrived & (smooth != self.shown[rows]))
        self.shown[rows] = np.where(moved, smooth, self.shown[rows])
        changed: list[int] = rows[moved.any(axis=1)].tolist()
        return changed

    def copy(self) -> "Loads":
        """An independent copy."""
        other = Loads(seconds=self.seconds)
        other.now, other.shown, other._smooth = self.now.copy(), self.shown.copy(), self._smooth.copy()
        other._at = self._at.copy()
        return other

    def _smoothed(self, rows: int | npt.NDArray[np.intp], *, at: float) -> Floats:
        elapsed = np.maximum(0.0, at - self._at[rows])
        weight = np.exp(-elapsed / self.seconds)[..., np.newaxis]
        return np.asarray(self.now[rows] + (self._smooth[rows] - self.now[rows]) * weight, dtype=np.float64)
