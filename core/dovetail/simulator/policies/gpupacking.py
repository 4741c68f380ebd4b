"""GPU packing, as in the simulator of the FGD paper: used devices first, then free ones of used nodes, then idle nodes.

Not to be taken for PACK, the word that jobs use: that is PH.
"""

import numpy as np

from dovetail.fragmentation.columns import FREE_DEVICES, Columns, Floats, Ints
from dovetail.fragmentation.policy import ScoredPolicy
from dovetail.fragmentation.shapes import WHOLE_MILLI, Shape
from dovetail.simulator.policies.tightest import tightest_device


class GPUPacking:
    """100 to 50 for a used device, by how little it has left; 50 to 33 for free devices of a used node, by how few
    are taken; below for an idle node, by how few it has."""

    def score(self, columns: Columns, shape: Shape, *, rows: Ints) -> tuple[Floats, Ints | None]:
        """Score of each of `rows`, and the tightest device."""
        device = tightest_device(columns, shape, rows=rows)
        if not shape.gpus:
            return np.zeros(len(rows)), device
        free = columns.spare[rows, FREE_DEVICES]
        score = np.full(len(rows), max(50 - shape.gpus, 33), dtype=np.float64)
        if device is not None:
            left = columns.left[rows, device]
            used = np.maximum(100 - left * 100 // WHOLE_MILLI // 10, 50)
            score = np.where(left < WHOLE_MILLI, used, score)
        return np.where(free == columns.gpus[rows], np.maximum(33 - free, free), score), device


def gpupacking(columns: Columns) -> ScoredPolicy:
    """The policy for a cluster."""
    return ScoredPolicy(columns, GPUPacking())
