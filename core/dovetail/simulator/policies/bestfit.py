"""Best fit: the node with the least CPU and device milli left over, as in the simulator of the FGD paper.

Half the weight each, against the largest node there (128 CPUs, 8 GPUs), as a whole number of percent. A share goes to
the device with the least left that is enough.
"""

from typing import Final

import numpy as np

from dovetail.fragmentation.columns import CPU, Columns, Floats, Ints
from dovetail.fragmentation.policy import ScoredPolicy
from dovetail.fragmentation.shapes import Shape
from dovetail.simulator.policies.tightest import tightest_device

LARGEST_CPU_MILLI: Final = 128_000
LARGEST_GPU_MILLI: Final = 8_000


class BestFit:
    """Percent of the largest node that would not be left over."""

    def score(self, columns: Columns, shape: Shape, *, rows: Ints) -> tuple[Floats, Ints | None]:
        """Score of each of `rows`, and the tightest device."""
        cpu = (columns.spare[rows, CPU] - shape.cpu_milli) / LARGEST_CPU_MILLI
        gpu = (columns.left[rows].sum(axis=1) - shape.gpu_milli) / LARGEST_GPU_MILLI
        score = np.trunc((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0)
        return score, tightest_device(columns, shape, rows=rows)


def bestfit(columns: Columns) -> ScoredPolicy:
    """The policy for a cluster."""
    return ScoredPolicy(columns, BestFit())
