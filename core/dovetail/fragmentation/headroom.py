"""How many more pods of each class nodes could take, and the change by a placement.

H_m(n) = min over CPU, memory and devices; 0 where the model is not allowed. For shares, the devices give the sum of
left // milli; for whole devices, free // number; for pods without devices they set no limit.
"""

from collections.abc import Sequence
from copy import copy
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.fragmentation.capacity import CPU, MEMORY, Columns, Floats, Ints
from dovetail.fragmentation.gradient import DeviceSums
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.workload_mix import Mix

# Single precision: a quotient of whole numbers below 2^24 never rounds up to the next whole number.
Counts = npt.NDArray[np.float32]
_NO_LIMIT: Final = 1e9


class Headroom:
    """H of every node for every class of a mix, recomputed only where the columns were touched.

    Each shape of `by_model` is counted on the nodes of each model of its own, [T], after the M classes.
    """

    def __init__(self, columns: Columns, *, mix: Mix, by_model: Sequence[Shape] = ()) -> None:
        self.columns = columns
        models = len(columns.model_names)
        allowed = np.concatenate([mix.allowed(columns), *[np.eye(models, dtype=np.bool_)] * len(by_model)], axis=1)
        more = tuple(shape for shape in by_model for _ in range(models))
        mix = Mix(classes=mix.classes + more, weights=(*mix.weights, *[0] * len(more)))
        gpus, share_milli = mix.field("gpus"), mix.field("share_milli")
        host = np.stack([mix.field("cpu_milli"), mix.field("memory_mib")])
        self._host: Counts = np.maximum(host, 1).astype(np.float32)
        self._number: Counts = np.maximum(gpus, 1).astype(np.float32)
        self._allowed: Counts | None = None if allowed.all() else allowed.astype(np.float32)
        # Pods of each class that one device with r milli left could take, [1001, M]; unlimited for pods without
        # devices.
        milli = np.arange(WHOLE_MILLI + 1)[:, None]
        taken = np.where(gpus > 0, milli // np.maximum(share_milli, 1), _NO_LIMIT)
        self._devices = DeviceSums(taken.astype(np.float32))
        self._whole: Counts = np.where(gpus > 0, taken[WHOLE_MILLI], 0).astype(np.float32)
        self._sums: Counts = np.zeros((len(columns), len(mix.classes)), dtype=np.float32)
        self._count: Counts = np.zeros((len(columns), len(mix.classes)), dtype=np.float32)
        self._seen = columns.changes
        self._recompute(np.arange(len(columns)))
        self._total: Floats = self._count.sum(axis=0, dtype=np.float64)

    def over(self, columns: Columns) -> "Headroom":
        """An independent copy, for `columns` that are a copy of the present ones."""
        other: Headroom = copy(self)
        other.columns = columns
        other._sums, other._count, other._total = self._sums.copy(), self._count.copy(), self._total.copy()
        return other

    def sync(self) -> None:
        """Recompute the nodes that were touched since the last call."""
        if self._seen != self.columns.changes:
            rows = self.columns.touched_since(self._seen)
            self._seen = self.columns.changes
            before = self._count.take(rows, axis=0)
            self._recompute(rows)
            self._total += (self._count.take(rows, axis=0) - before).sum(axis=0, dtype=np.float64)

    @property
    def total(self) -> Floats:
        """H of the cluster by class, in pods, [M]. The columns must be in sync."""
        return self._total

    def change(self, shape: Shape, *, rows: Ints, left: Ints | None) -> Counts:
        """The change of H by class, [n, M], if the shape goes to each of `rows`.

        A share goes to a device with `left` milli [n] there. The columns must be in sync.
        """
        sums = self._sums.take(rows, axis=0)
        if left is not None:
            sums += self._devices.by_share(shape.share_milli, left=left)
        elif shape.gpus:
            sums -= shape.gpus * self._whole
        after = self._after(rows, sums=sums, taken=np.array([shape.cpu_milli, shape.memory_mib]))
        after -= self._count.take(rows, axis=0)
        return after

    def change_by_taking(self, taking: Taking) -> Counts:
        """The same for a pod that takes any devices, [n, M]."""
        rows = taking.rows
        sums = self._sums.take(rows, axis=0)
        sums += self._devices.by_taking(taking)
        after = self._after(rows, sums=sums, taken=np.array([taking.cpu_milli, taking.memory_mib]))
        after -= self._count.take(rows, axis=0)
        return after

    def _recompute(self, rows: Ints) -> None:
        sums = self._devices.compute(self.columns.left.take(rows, axis=0))
        self._sums[rows] = sums
        self._count[rows] = self._after(rows, sums=sums)

    def _after(self, rows: Ints, *, sums: Counts, taken: Ints | None = None) -> Counts:
        """Pods of each class, [n, M], for device sums [n, M], once `taken` CPU and memory are gone."""
        spare = self.columns.spare.take(rows, axis=0)[:, :2]
        if taken is not None:
            spare -= taken
        by_host = spare.astype(np.float32)[:, :, None] / self._host
        count = sums / self._number
        np.minimum(count, by_host[:, CPU], out=count)
        np.minimum(count, by_host[:, MEMORY], out=count)
        np.floor(count, out=count)
        if self._allowed is not None:
            count *= self._allowed.take(self.columns.model.take(rows), axis=0)
        return count
