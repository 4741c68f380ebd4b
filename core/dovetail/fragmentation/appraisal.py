"""The value of a placement for a caller that chooses itself: the protocol, and FGD.

The live engine decides itself what fits and on which devices, and gets from here how good that is. A value is `static`
plus `loss` at the current `price`. The first two change only with their node, so that they can be kept for it; prices
belong to the cluster.
"""

from copy import copy
from typing import Protocol

import numpy as np

from dovetail.fragmentation.capacity import Columns, Floats
from dovetail.fragmentation.fgd import COVERED_PERCENT, quantised
from dovetail.fragmentation.gradient import Gradient
from dovetail.fragmentation.headroom import Counts
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.workload_mix import Mix, covering


class Appraisal(Protocol):
    """The value of a placement; higher is better. `epoch` counts the changes of `price`, [M]."""

    gradient: Gradient
    price: Counts
    epoch: int

    def refresh(self) -> None:
        """Update from the columns, and update the prices when they are due."""
        ...

    def static(self, taking: Taking) -> Floats:
        """The part of the value that does not depend on prices, [n]."""
        ...

    def loss(self, taking: Taking) -> Counts:
        """The change of headroom by class, in pods, [n, M]."""
        ...

    def follow(self, columns: Columns) -> None:
        """Switch to the columns that the present ones are a copy of."""
        ...

    def over(self, columns: Columns) -> "Appraisal":
        """An independent appraisal, for `columns` that are a copy of the present ones, at prices of now."""
        ...


class FGDAppraisal:
    """Fragmentation gradient descent: the score of the smallest growth of fragmentation."""

    def __init__(self, columns: Columns, *, mix: Mix) -> None:
        self.gradient = Gradient(columns, mix=covering(mix, percent=COVERED_PERCENT))
        self.price: Counts = np.zeros(0, dtype=np.float32)
        self.epoch = 0

    def refresh(self) -> None:
        """Recompute the nodes that were touched since the last call."""
        self.gradient.sync()

    def static(self, taking: Taking) -> Floats:
        """The score, 0 to 100, [n]."""
        return quantised(self.gradient.change_by_taking(taking))

    def loss(self, taking: Taking) -> Counts:
        """Zero classes, [n, 0]: FGD has no prices."""
        return np.zeros((len(taking.rows), 0), dtype=np.float32)

    def follow(self, columns: Columns) -> None:
        """Switch to the columns that the present ones are a copy of."""
        self.gradient.columns = columns

    def over(self, columns: Columns) -> "FGDAppraisal":
        """An independent appraisal, for `columns` that are a copy of the present ones."""
        other: FGDAppraisal = copy(self)
        other.gradient = self.gradient.over(columns)
        return other
