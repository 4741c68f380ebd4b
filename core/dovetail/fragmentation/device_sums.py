"""Sums over a node's devices of a function of each device's free milli, and their changes."""

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.fragmentation.capacity import Ints
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI

Number = TypeVar("Number", bound=np.floating)


class DeviceSums(Generic[Number]):
    """`by_milli` [1001, ...] is what one device with so many milli left adds."""

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
