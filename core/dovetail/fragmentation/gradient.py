"""The fragmentation of Weng et al.

(USENIX ATC'23), kept per node, and its change by a placement.

For a node and a class m that fits there (model, CPU, enough devices with the milli), the milli on devices too small for
m are fragments; where m does not fit, all idle milli are. F is the mean over the mix. In other words F = idle - usable,
where usable sums, over the classes that fit, the milli on devices large enough for them.

Classes with the same milli and number of devices differ only in CPU: they share one column (a group), and a table by
model and CPU gives how much of the group's weight fits. Some 90 classes become some 25 groups.
"""

from copy import copy
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.fragmentation.capacity import CPU, Columns, Floats, Ints
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.workload_mix import Mix

Number = TypeVar("Number", bound=np.floating)


class DeviceSums(Generic[Number]):
    """Sums over a node's devices of a function of each device's free milli, and their changes.

    `by_milli` [1001, ...] is what one device with so many milli left adds.
    """

    def __init__(self, by_milli: npt.NDArray[Number]) -> None:
        self.by_milli = by_milli
        self._steps: dict[int, npt.NDArray[Number]] = {}

    def compute(self, left: Ints) -> npt.NDArray[Number]:
        """The sums for nodes with `left` milli on their devices [n, D]: [n, ...]."""
        if left.shape[1] == 1:
            return self.by_milli.take(left[:, 0], axis=0)
        sums: npt.NDArray[Number] = self.by_milli.take(left, axis=0).sum(axis=1)
        return sums

    def by_share(self, share_milli: int, *, left: Ints) -> npt.NDArray[Number]:
        """The changes of the sums when a share is taken from a device with `left` [n]: [n, ...]."""
        step = self._steps.get(share_milli)
        if step is None:
            after = np.maximum(np.arange(WHOLE_MILLI + 1) - share_milli, 0)
            step = self._steps[share_milli] = self.by_milli[after] - self.by_milli
        return step.take(left, axis=0)

    def by_taking(self, taking: Taking) -> npt.NDArray[Number]:
        """The changes of the sums by a taking, [n, ...]."""
        return self.compute(taking.after) - self.compute(taking.before)


class Gradient:
    """F of every node of `columns` for a mix, recomputed only where the columns were touched."""

    def __init__(self, columns: Columns, *, mix: Mix) -> None:
        self.columns = columns
        self.total = float(max(1, mix.total))
        classes = list(zip(mix.classes, mix.weights, strict=True))
        groups = sorted({(one.share_milli, one.gpus) for one in mix.classes if one.gpus})
        self._cpus: Ints = np.unique(mix.field("cpu_milli"))
        self._numbers: Floats = np.array([gpus for _, gpus in groups], dtype=np.float64)
        self._fitting = self._fitting_weights(classes, groups=groups)
        # What one device with r milli left adds to each group: [0] one device, if large enough; [1] its milli.
        milli: Floats = np.arange(WHOLE_MILLI + 1, dtype=np.float64)[:, None]
        enough = milli >= np.array([level for level, _ in groups], dtype=np.float64)
        enough &= milli > 0
        self._devices = DeviceSums(np.stack([enough.astype(np.float64), enough * milli], axis=1))
        self._sums: Floats = np.zeros((len(columns), 2, len(groups)))
        self._usable: Floats = np.zeros(len(columns))
        self._seen = columns.changes
        self._recompute(np.arange(len(columns)))

    def over(self, columns: Columns) -> "Gradient":
        """An independent copy, for `columns` that are a copy of the present ones."""
        other: Gradient = copy(self)
        other.columns = columns
        other._sums, other._usable = self._sums.copy(), self._usable.copy()
        return other

    def sync(self) -> None:
        """Recompute the nodes that were touched since the last call."""
        if self._seen != self.columns.changes:
            rows = self.columns.touched_since(self._seen)
            self._seen = self.columns.changes
            self._recompute(rows)

    def fragmentation(self) -> Floats:
        """F of every node in milli, [N]."""
        self.sync()
        amount: Floats = self.columns.left.sum(axis=1) - self._usable / self.total
        return amount

    def change_by_share(self, shape: Shape, *, rows: Ints, left: Ints) -> Floats:
        """The change of F in milli if a share goes to a device of `rows`, pair by pair, [n].

        The device has `left` milli [n]. The columns must be in sync.
        """
        sums = self._sums.take(rows, axis=0)
        sums += self._devices.by_share(shape.share_milli, left=left)
        return self._change(shape, rows=rows, sums=sums)

    def change_by_whole(self, shape: Shape, *, rows: Ints) -> Floats:
        """The same for a shape that takes wholly free devices, or none, [n]."""
        sums = self._sums.take(rows, axis=0)
        if shape.gpus:
            sums -= shape.gpus * self._devices.by_milli[WHOLE_MILLI]
        return self._change(shape, rows=rows, sums=sums)

    def change_by_taking(self, taking: Taking) -> Floats:
        """The same for a pod that takes any devices, [n]."""
        sums = self._sums.take(taking.rows, axis=0)
        sums += self._devices.by_taking(taking)
        lost = self._usable_lost(taking.rows, sums=sums, cpu_milli=taking.cpu_milli)
        lost -= (taking.before - taking.after).sum(axis=1)
        return lost

    def _change(self, shape: Shape, *, rows: Ints, sums: Floats) -> Floats:
        lost = self._usable_lost(rows, sums=sums, cpu_milli=shape.cpu_milli)
        lost -= shape.gpu_milli
        return lost

    def _usable_lost(self, rows: Ints, *, sums: Floats, cpu_milli: int) -> Floats:
        usable = self._usable_milli(rows, sums=sums, cpu=self._cpu(rows) - cpu_milli)
        lost: Floats = self._usable.take(rows)
        lost -= usable
        lost /= self.total
        return lost

    def _cpu(self, rows: Ints) -> Ints:
        # Select rows first: otherwise NumPy copies a whole column of the matrix.
        return self.columns.spare.take(rows, axis=0)[:, CPU]

    def _recompute(self, rows: Ints) -> None:
        sums = self._devices.compute(self.columns.left.take(rows, axis=0))
        self._sums[rows] = sums
        self._usable[rows] = self._usable_milli(rows, sums=sums, cpu=self._cpu(rows))

    def _usable_milli(self, rows: Ints, *, sums: Floats, cpu: Ints) -> Floats:
        """Usable milli times weight, [n], for device sums [n, 2, K] and free CPU [n]."""
        place = self.columns.model.take(rows)
        place *= len(self._cpus) + 1
        place += self._cpus.searchsorted(cpu, side="right")
        weights = self._fitting.take(place, axis=0)
        weights *= sums[:, 0] >= self._numbers
        usable: Floats = np.vecdot(weights, sums[:, 1])
        return usable

    def _fitting_weights(self, classes: list[tuple[Shape, int]], *, groups: list[tuple[int, int]]) -> Floats:
        """The weight of each group that fits, [models * J, K].

        Rows are models by the number of CPU steps reached.
        """
        weights = np.zeros((len(self.columns.model_names), len(self._cpus) + 1, len(groups)))
        place = {group: at for at, group in enumerate(groups)}
        for one, weight in classes:
            if one.gpus:
                step = int(self._cpus.searchsorted(one.cpu_milli)) + 1
                group = place[one.share_milli, one.gpus]
                weights[self.columns.allowed_models(one), step:, group] += weight
        return weights.reshape(weights.shape[0] * weights.shape[1], len(groups))
