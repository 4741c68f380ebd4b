"""How many more pods of each class a node could take, kept per node and summed, and its change by a placement.

H_m(n) = min over CPU, memory and devices; 0 where the model is not allowed. For shares the devices give
sum over devices of left // milli, for whole devices free // number, and for pods without a device they set no limit.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.fragmentation.columns import CPU, MEMORY, Columns, Floats, Ints
from dovetail.fragmentation.mix import Mix
from dovetail.fragmentation.shapes import WHOLE_MILLI, Shape

# Single precision: a quotient of whole numbers below 2^24 is never rounded up to the next whole number.
Counts = npt.NDArray[np.float32]
_NO_LIMIT: Final = 1e9


class Headroom:
    """H of every node for every class of a mix, recomputed only where the columns were touched."""

    def __init__(self, columns: Columns, mix: Mix) -> None:
        self.columns = columns
        gpus, share_milli = mix.field("gpus"), mix.field("share_milli")
        self._cpu: Counts = np.maximum(mix.field("cpu_milli"), 1).astype(np.float32)
        self._memory: Counts = np.maximum(mix.field("memory_mib"), 1).astype(np.float32)
        self._number: Counts = np.maximum(gpus, 1).astype(np.float32)
        self._no_device: Counts = np.where(gpus == 0, _NO_LIMIT, 0).astype(np.float32)
        self._allowed: Counts = mix.allowed(columns).astype(np.float32)
        # Pods of each class that one device with r milli left could take, [1001, M].
        milli = np.arange(WHOLE_MILLI + 1)[:, None]
        self._device: Counts = np.where(gpus > 0, milli // np.maximum(share_milli, 1), 0).astype(np.float32)
        self._steps: dict[int, Counts] = {}
        self._sums: Counts = np.zeros((len(columns), len(mix.classes)), dtype=np.float32)
        self._count: Counts = np.zeros((len(columns), len(mix.classes)), dtype=np.float32)
        self._seen = columns.changes
        self._recompute(np.arange(len(columns)))
        self._total: Floats = self._count.sum(axis=0, dtype=np.float64)

    def sync(self) -> None:
        """Recompute the nodes that were touched since the last look."""
        if self._seen != self.columns.changes:
            rows = self.columns.touched_since(self._seen)
            self._seen = self.columns.changes
            before = self._count.take(rows, axis=0)
            self._recompute(rows)
            self._total += (self._count.take(rows, axis=0) - before).sum(axis=0, dtype=np.float64)

    @property
    def total(self) -> Floats:
        """H of the cluster by class, [M]. The columns must be in sync."""
        return self._total

    def change(self, shape: Shape, *, rows: Ints, left: Ints | None) -> Counts:
        """H after minus H before by class, [n, M], if the shape goes to each of `rows`; a share to a device with
        `left` milli there. The columns must be in sync."""
        sums = self._sums.take(rows, axis=0)
        if left is not None:
            sums += self._step(shape.share_milli).take(left, axis=0)
        elif shape.gpus:
            sums -= shape.gpus * self._device[WHOLE_MILLI]
        spare = self.columns.spare.take(rows, axis=0)
        after = self._after(
            rows, sums=sums, cpu=spare[:, CPU] - shape.cpu_milli, memory=spare[:, MEMORY] - shape.memory_mib
        )
        after -= self._count.take(rows, axis=0)
        return after

    def _recompute(self, rows: Ints) -> None:
        sums = self._device.take(self.columns.left.take(rows, axis=0), axis=0).sum(axis=1)
        self._sums[rows] = sums
        spare = self.columns.spare.take(rows, axis=0)
        self._count[rows] = self._after(rows, sums=sums, cpu=spare[:, CPU], memory=spare[:, MEMORY])

    def _after(self, rows: Ints, *, sums: Counts, cpu: Ints, memory: Ints) -> Counts:
        """Pods of each class for device sums [n, M], free CPU [n] and free memory [n]."""
        count = sums / self._number
        count += self._no_device
        np.minimum(count, cpu.astype(np.float32)[:, None] / self._cpu, out=count)
        np.minimum(count, memory.astype(np.float32)[:, None] / self._memory, out=count)
        np.floor(count, out=count)
        count *= self._allowed.take(self.columns.model.take(rows), axis=0)
        return count

    def _step(self, share_milli: int) -> Counts:
        """What taking `share_milli` from a device with r milli left changes in the sums, [1001, M]."""
        step = self._steps.get(share_milli)
        if step is None:
            after = np.maximum(np.arange(WHOLE_MILLI + 1) - share_milli, 0)
            step = self._steps[share_milli] = self._device[after] - self._device
        return step
