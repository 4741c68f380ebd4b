"""Fragmentation gradient descent: Weng et al., "Beware of Fragmentation", USENIX ATC'23.

The score is quantised to 101 steps, as kube-scheduler's is, and that is part of the policy: nearly equal scores become
ties and go to the first node of the static order, which fills nodes one after the other. With exact scores it allocates
a whole point less of the openb trace (94.1 instead of 95.1 %).
"""

from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import Columns, Floats, Ints
from dovetail.fragmentation.gradient import Gradient
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.policy import ScoredPolicy, best_device, distinct_devices
from dovetail.fragmentation.workload_mix import Mix, covering

COVERED_PERCENT: Final = 95


class FGDScorer:
    """The integer score, 0 to 100, of the smallest growth of fragmentation."""

    def __init__(self, columns: Columns, *, mix: Mix) -> None:
        self._gradient = Gradient(columns, mix=covering(mix, percent=COVERED_PERCENT))

    def score(self, columns: Columns, *, shape: Shape, rows: Ints) -> tuple[Floats, Ints | None]:
        """The score of each of `rows`, [n], and for a share the first device that has it, [n]."""
        self._gradient.sync()
        if not shape.is_share:
            return quantised(self._gradient.change_by_whole(shape, rows=rows)), None
        at, device = distinct_devices(columns, shape=shape, rows=rows)
        pairs = rows[at]
        change = self._gradient.change_by_share(shape, rows=pairs, left=columns.left[pairs, device])
        return best_device(quantised(change), at=at, device=device, count=len(rows), width=columns.left.shape[1])


def quantised(change_milli: Floats) -> Floats:
    """floor(100 sigmoid(-change in GPUs)), [n]: 50 for no change, more when fragmentation falls."""
    return np.floor(100.0 / (1.0 + np.exp(change_milli / WHOLE_MILLI)))


def fgd(columns: Columns, *, mix: Mix) -> ScoredPolicy:
    """The policy for a cluster and its expected mix."""
    return ScoredPolicy(columns, scorer=FGDScorer(columns, mix=mix))
