"""What is kept of a subject, and in how many bytes. Values only."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
# How values of one step become one of a coarser step.
Fold = Literal["mean", "sum", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A figure of a subject. `step` is the value of one unit of a whole type, whose largest number is "not known"."""

    name: str
    kind: Literal["u1", "u2", "f4"]
    step: float = 1.0
    fold: Fold = "mean"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type in memory and in the database, in the same byte order on every machine."""
        return np.dtype(f"<{self.kind}")

    @property
    def nothing(self) -> float:
        """The kept number of a value that is not known."""
        return float("nan") if self.kind == "f4" else float(np.iinfo(self.dtype).max)

    def encode(self, values: Floats) -> npt.NDArray[Any]:
        """Values as they are kept, of the same shape; NaN is "not known"."""
        if self.kind == "f4":
            return values.astype(self.dtype)
        units = np.clip(np.rint(values / self.step), 0, self.nothing - 1)
        return np.where(np.isnan(values), self.nothing, units).astype(self.dtype)

    def decode(self, kept: npt.NDArray[Any]) -> Floats:
        """Kept numbers as values, of the same shape."""
        if self.kind == "f4":
            return kept.astype(np.float32)
        found = kept.astype(np.float32) * np.float32(self.step)
        found[kept == np.iinfo(self.dtype).max] = np.nan
        return found

    def folded(self, values: Floats) -> Floats:
        """Values of several times, [n, subjects], as one value each; NaN where none is known."""
        known = ~np.isnan(values)
        if self.fold == "max":
            found = np.where(known, values, -np.inf).max(axis=0)
        else:
            found = np.where(known, values, 0).sum(axis=0)
            if self.fold == "mean":
                found = found / np.maximum(known.sum(axis=0), 1)
        return np.where(known.any(axis=0), found, np.nan).astype(np.float32)


# Of a device. GPUs are those that it counts as: a MIG instance counts by its slices. 7 bytes a sample.
DEVICE: Final = (
    Column(name="utilization", kind="u1", step=0.005),
    Column(name="memory", kind="u1", step=0.005),
    Column(name="temperature", kind="u1", fold="max"),
    Column(name="promised", kind="u2", step=0.001),
    Column(name="power", kind="u2"),
)
# Of what a job holds, or all pods of a namespace: sums over their devices, so that they can be added up again.
# `measured` are the promised GPUs whose utilization is known, and `used` is what of them was at work.
HELD: Final = (
    Column(name="promised", kind="f4"),
    Column(name="measured", kind="f4"),
    Column(name="used", kind="f4"),
    Column(name="memory_used", kind="f4"),
    Column(name="memory_promised", kind="f4"),
    Column(name="power", kind="f4"),
    Column(name="temperature", kind="f4", fold="max"),
)
NAMESPACE: Final = (
    *HELD,
    Column(name="waiting", kind="f4"),
    Column(name="running", kind="f4"),
    Column(name="starts", kind="f4", fold="sum"),
    Column(name="wait_seconds", kind="f4", fold="sum"),
)
