"""SPREAD: the idlest node, and for a share its idlest device.

What jobs get for this word (design §6), where a promise is all the load there is: 0.7 for the devices (0.4 utilization
and 0.3 memory, which a trace has not) and 0.2 for CPU, over their sum.
"""

from typing import Final

import numpy as np

from dovetail.fragmentation.columns import CPU, Columns, Floats, Ints
from dovetail.fragmentation.policy import ScoredPolicy
from dovetail.fragmentation.shapes import WHOLE_MILLI, Shape

DEVICE_WEIGHT: Final = 0.7
CPU_WEIGHT: Final = 0.2


class Spread:
    """How idle a node is, 0 to 1."""

    def score(self, columns: Columns, shape: Shape, *, rows: Ints) -> tuple[Floats, Ints | None]:
        """Score of each of `rows`, and the device with the most left."""
        left = columns.left[rows]
        devices = left.sum(axis=1) / np.maximum(1, columns.gpus[rows] * WHOLE_MILLI)
        cpu = columns.spare[rows, CPU] / np.maximum(1, columns.capacity[rows, CPU])
        score = (DEVICE_WEIGHT * devices + CPU_WEIGHT * cpu) / (DEVICE_WEIGHT + CPU_WEIGHT)
        return score, left.argmax(axis=1) if shape.is_share else None


def spread(columns: Columns) -> ScoredPolicy:
    """The policy for a cluster."""
    return ScoredPolicy(columns, Spread())
