"""Utilization of each device, exponentially smoothed over time: a short spike changes little, a lasting load does.

Agents publish on a change, so a report holds until the next one. Between two reports the smoothed value approaches the
last one: `s(t) = u + (s - u) * exp(-t / T)`. A new report has no weight at the moment of its arrival. Times are seconds
of one monotonic clock.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The visible value moves in steps: finer steps would invalidate the cached judgements of a node for no gain.
STEP: Final = 0.05
_CLOSE: Final = 0.01


class SmoothedUtilization:
    """Utilization of devices by row and slot, 0 to 1. `seconds` is T: after it, 63 % of a change are visible."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.now: Floats = np.zeros((0, 0))
        self.shown: Floats = np.zeros((0, 0))
        self._smooth: Floats = np.zeros((0, 0))
        self._at: Floats = np.zeros(0)

    def grow(self, *, rows: int, devices: int) -> None:
        """Extend the arrays and keep their content."""
        height, width = self.now.shape
        more = ((0, rows - height), (0, devices - width))
        self.now, self.shown, self._smooth = (np.pad(each, more) for each in (self.now, self.shown, self._smooth))
        self._at = np.pad(self._at, (0, rows - height))

    def report(
        self, row: int, *, values: Sequence[float], at: float | None, restart: bool, tenants: npt.NDArray[np.int64]
    ) -> None:
        """Apply the report of a row. With `restart`, or without a time, it counts in full at once.

        So does a lower load of a device without `tenants`, [d]: what pods that have left used says nothing.
        """
        reported = np.zeros(self.now.shape[1])
        reported[: len(values)] = values
        self._smooth[row] = reported if restart or at is None else self._smoothed(row, at=at)
        self._smooth[row] = np.where(tenants > 0, self._smooth[row], np.minimum(self._smooth[row], reported))
        self._at[row] = 0.0 if at is None else at
        self.now[row] = reported
        self.shown[row] = self._smooth[row]

    def settle(self, at: float) -> list[int]:
        """Move the visible values to the time `at`; the rows where they changed."""
        rows = np.flatnonzero((self.now != self.shown).any(axis=1))
        smooth = self._smoothed(rows, at=at)
        smooth = np.where(np.abs(smooth - self.now[rows]) < _CLOSE, self.now[rows], smooth)
        arrived = smooth == self.now[rows]
        moved = (np.abs(smooth - self.shown[rows]) >= STEP) | (arrived & (smooth != self.shown[rows]))
        self.shown[rows] = np.where(moved, smooth, self.shown[rows])
        changed: list[int] = rows[moved.any(axis=1)].tolist()
        return changed

    def counted(self, row: int, *, tenants: npt.NDArray[np.int64]) -> Floats:
        """The visible utilization of each device of a row, [d], which has this number of `tenants`, [d].

        It is at most the last report of a device that its tenants have left since.
        """
        return np.where(tenants > 0, self.shown[row], np.minimum(self.shown[row], self.now[row]))

    def copy(self) -> "SmoothedUtilization":
        """An independent copy."""
        other = SmoothedUtilization(seconds=self.seconds)
        other.now, other.shown, other._smooth = self.now.copy(), self.shown.copy(), self._smooth.copy()
        other._at = self._at.copy()
        return other

    def _smoothed(self, rows: int | npt.NDArray[np.intp], *, at: float) -> Floats:
        elapsed = np.maximum(0.0, at - self._at[rows])
        weight = np.exp(-elapsed / self.seconds)[..., np.newaxis]
        return np.asarray(self.now[rows] + (self._smooth[rows] - self.now[rows]) * weight, dtype=np.float64)
