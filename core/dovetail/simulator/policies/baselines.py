"""Baselines of the FGD paper's simulator: random, spread, best fit and GPU packing.

GPU packing takes used devices first, then free ones of used nodes, then idle nodes. It is not PACK, the policy of jobs:
that is PH.
"""

from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import CPU, FREE_DEVICES, Columns, Floats, Ints, choice_of, needs
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.fragmentation.policy import ScoredPolicy, fitting


def tightest_device(columns: Columns, *, shape: Shape, rows: Ints) -> Ints | None:
    """The device of each of `rows` with the least milli left that is enough for a share, [n]."""
    if not shape.is_share:
        return None
    left = columns.left[rows]
    device: Ints = np.where(left >= shape.share_milli, left, WHOLE_MILLI + 1).argmin(axis=1)
    return device


class RandomFit:
    """Chooses each feasible node with the same probability."""

    def __init__(self, columns: Columns, *, random: np.random.Generator) -> None:
        self._columns = columns
        self._random = random
        self._rows = np.arange(len(columns))

    def choose(self, shape: Shape) -> Choice | None:
        """A random place for a pod that arrives now, or None when it fits nowhere."""
        columns = self._columns
        fits = fitting(columns, rows=self._rows, needs=needs(shape), allowed=columns.allowed(shape))
        rows = fits.nonzero()[0]
        if not rows.size:
            return None
        node = int(self._random.choice(rows))
        devices = (columns.left[node] >= shape.share_milli).nonzero()[0]
        device = int(self._random.choice(devices)) if shape.is_share else 0
        return choice_of(columns, shape=shape, node=node, device=device)


DEVICE_WEIGHT: Final = 0.7
CPU_WEIGHT: Final = 0.2


class Spread:
    """How idle a node is, 0 to 1."""

    def score(self, columns: Columns, *, shape: Shape, rows: Ints) -> tuple[Floats, Ints | None]:
        """The score of each of `rows`, and the device with the most milli left, both [n]."""
        left = columns.left[rows]
        devices = left.sum(axis=1) / np.maximum(1, columns.gpus[rows] * WHOLE_MILLI)
        cpu = columns.spare[rows, CPU] / np.maximum(1, columns.capacity[rows, CPU])
        score = (DEVICE_WEIGHT * devices + CPU_WEIGHT * cpu) / (DEVICE_WEIGHT + CPU_WEIGHT)
        return score, left.argmax(axis=1) if shape.is_share else None


def spread(columns: Columns) -> ScoredPolicy:
    """The policy for a cluster."""
    return ScoredPolicy(columns, scorer=Spread())


LARGEST_CPU_MILLI: Final = 128_000
LARGEST_GPU_MILLI: Final = 8_000


class BestFit:
    """The percentage of the largest node that would not be left over."""

    def score(self, columns: Columns, *, shape: Shape, rows: Ints) -> tuple[Floats, Ints | None]:
        """The score of each of `rows`, and the tightest device, both [n]."""
        cpu = (columns.spare[rows, CPU] - shape.cpu_milli) / LARGEST_CPU_MILLI
        gpu = (columns.left[rows].sum(axis=1) - shape.gpu_milli) / LARGEST_GPU_MILLI
        score = np.trunc((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0)
        return score, tightest_device(columns, shape=shape, rows=rows)


def bestfit(columns: Columns) -> ScoredPolicy:
    """The policy for a cluster."""
    return ScoredPolicy(columns, scorer=BestFit())


class GPUPacking:
    """100 to 50 for a used device, 50 to 33 for free devices of a used node, else less.

    A used device scores by how little it has left, free devices of a used node by how few the pod takes, and an idle
    node by how few devices it has.
    """

    def score(self, columns: Columns, *, shape: Shape, rows: Ints) -> tuple[Floats, Ints | None]:
        """The score of each of `rows`, and the tightest device, both [n]."""
        device = tightest_device(columns, shape=shape, rows=rows)
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
    return ScoredPolicy(columns, scorer=GPUPacking())
