"""What a placement is worth by a policy's reckoning, whoever chooses: the protocol, and FGD's form of it.

The live engine decides itself what fits and on which devices, and asks here how good that is. A value is `static` plus
`loss` at the `price` of the day. The first two change with their node alone, so that they can be kept for it; prices
are the cluster's.
"""

from typing import Protocol

import numpy as np

from dovetail.fragmentation.capacity import Columns, Floats
from dovetail.fragmentation.fgd import COVERED_PERCENT, quantised
from dovetail.fragmentation.gradient import Gradient
from dovetail.fragmentation.headroom import Counts
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.workload_mix import Mix, covering


class Appraisal(Protocol):
    """What a placement is worth, higher is better. `epoch` counts the changes of `price`, [M]."""

    gradient: Gradient
    price: Counts
    epoch: int

    def refresh(self) -> None:
        """Come up to date with the columns, and with the prices when it is time."""
        ...

    def static(self, taking: Taking) -> Floats:
        """What does not depend on prices, [n]."""
        ...

    def loss(self, taking: Taking) -> Counts:
        """The change of headroom by class, [n, M]."""
        ...

    def follow(self, columns: Columns) -> None:
        """Go on with the columns of which the present ones are a copy."""
        ...


class FGDAppraisal:
    """Fragmentation gradient descent: the integer score of the smallest growth of fragmentation, and no prices."""

    def __init__(self, columns: Columns, mix: Mix) -> None:
        self.gradient = Gradient(columns, covering(mix, percent=COVERED_PERCENT))
        self.price: Counts = np.zeros(0, dtype=np.float32)
        self.epoch = 0

    def refresh(self) -> None:
        """Recompute the nodes that were touched since the last look."""
        self.gradient.sync()

    def static(self, taking: Taking) -> Floats:
        """0 to 100."""
        return quantised(self.gradient.change_by_taking(taking))

    def loss(self, taking: Taking) -> Counts:
        """None: nothing is priced."""
        return np.zeros((len(taking.rows), 0), dtype=np.float32)

    def follow(self, columns: Columns) -> None:
        """Go on with the columns of which the present ones are a copy."""
        self.gradient.columns = columns
