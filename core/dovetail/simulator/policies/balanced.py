"""BALANCED: used nodes first; among equally used ones the node with the lowest future cost.

The policy of this name for jobs (design §6), without measurements: 0.3 for promised device memory, which a trace has as
milli, 0.2 for CPU, and 0.1 for the fragmentation term, which is PH, scaled to 0-1 over the nodes that fit.
"""

from typing import Final

import numpy as np

from dovetail.engine.score.score import scaled
from dovetail.fragmentation.capacity import CPU, Columns, choice_of
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.fragmentation.priced_headroom import PH
from dovetail.fragmentation.prices import PHSettings
from dovetail.fragmentation.workload_mix import Mix

MEMORY_WEIGHT: Final = 0.3
CPU_WEIGHT: Final = 0.2
FRAGMENTATION_WEIGHT: Final = 0.1


class Balanced:
    """Takes the node with the highest weighted sum, the first of equals."""

    def __init__(self, columns: Columns, *, mix: Mix, settings: PHSettings) -> None:
        self._columns = columns
        self._ph = PH(columns, mix=mix, settings=settings)

    def choose(self, shape: Shape) -> Choice | None:
        """The best place for a pod that arrives now, or None when it fits nowhere."""
        priced, device = self._ph.scores(shape)
        rows = (priced > -np.inf).nonzero()[0]
        if not rows.size:
            return None
        columns = self._columns
        memory = 1 - columns.left[rows].sum(axis=1) / np.maximum(1, columns.gpus[rows] * WHOLE_MILLI)
        cpu = 1 - columns.spare[rows, CPU] / np.maximum(1, columns.capacity[rows, CPU])
        score = MEMORY_WEIGHT * memory + CPU_WEIGHT * cpu + FRAGMENTATION_WEIGHT * scaled(priced[rows].astype(float))
        node = int(rows[score.argmax()])
        return choice_of(columns, shape=shape, node=node, device=int(device[node]))
