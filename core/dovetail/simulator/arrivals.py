"""Arrivals drawn from the pods of a trace by a seed, optionally with models and lifetimes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A pod that arrives, and leaves if it was placed. Times are in mean lifetimes."""

    shape: Shape
    at: float
    leaves_at: float = float("inf")


def filling(shapes: Sequence[Shape]) -> list[Visit]:
    """Pods that arrive one after the other and stay."""
    return [Visit(shape=shape, at=float(number)) for number, shape in enumerate(shapes)]


def sample(shapes: Sequence[Shape], *, capacity_milli: int, percent: float, random: np.random.Generator) -> list[Shape]:
    """Draw shapes with replacement until they request `percent` of the capacity.

    Some shape must request devices.
    """
    drawn: list[Shape] = []
    wanted, arrived = capacity_milli * percent / 100, 0
    while arrived < wanted:
        for at in random.integers(len(shapes), size=1024).tolist():
            drawn.append(shapes[at])
            arrived += shapes[at].gpu_milli
            if arrived >= wanted:
                break
    return drawn


def tied(shapes: Sequence[Shape], *, columns: Columns, percent: float, random: np.random.Generator) -> list[Shape]:
    """The same arrivals, with `percent` of those that request devices tied to one model.

    The model is drawn by its number of devices, from the models with a node that has enough of them.
    """
    devices = np.array([columns.gpus[columns.model == code].sum() for code in range(len(columns.model_names))])
    most = np.array([columns.gpus[columns.model == code].max(initial=0) for code in range(len(columns.model_names))])
    chosen = random.random(len(shapes)) * 100 < percent
    result = list(shapes)
    for at in np.flatnonzero(chosen).tolist():
        weights = np.where(most >= shapes[at].gpus, devices, 0)
        if shapes[at].gpus and weights.sum():
            model = int(random.choice(len(weights), p=weights / weights.sum()))
            result[at] = replace(shapes[at], models=(columns.model_names[model],))
    return result


def visiting(shapes: Sequence[Shape], *, capacity_milli: int, load: float, random: np.random.Generator) -> list[Visit]:
    """The same arrivals as a process in balance, with exponential lifetimes of mean 1.

    The first ones, which request `load` times the capacity, are present at time 0, as they would be after a long time
    without refusals. The others arrive as a Poisson process that requests as much in each mean lifetime.
    """
    milli = np.array([shape.gpu_milli for shape in shapes], dtype=np.float64)
    present = int(np.count_nonzero(np.cumsum(milli) <= load * capacity_milli))
    gaps = random.exponential(milli.mean() / (load * capacity_milli), size=len(shapes))
    gaps[:present] = 0.0
    starts = np.cumsum(gaps)
    ends = starts + random.exponential(1.0, size=len(shapes))
    return [
        Visit(shape=shape, at=start, leaves_at=end)
        for shape, start, end in zip(shapes, starts.tolist(), ends.tolist(), strict=True)
    ]
