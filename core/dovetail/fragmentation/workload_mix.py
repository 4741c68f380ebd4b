"""The classes of pods that are expected, and how often each arrives. Values only.

A class is what decides whether a node can take a pod: CPU, devices and allowed models. Pods of a class may differ in
memory; the class then carries their mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fragmentation.capacity import Bools, Columns, Floats, Ints
from dovetail.fragmentation.pod_shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Classes, the most frequent first, and their weights.

    Weights are whole numbers, so that sums of milli times weight are exact in floating point and ties remain ties.
    """

    classes: tuple[Shape, ...]
    weights: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of the weights."""
        return sum(self.weights)

    @property
    def probability(self) -> Floats:
        """The share of the arrivals by class, [M]."""
        return np.array(self.weights, dtype=np.float64) / max(1, self.total)

    def field(self, name: str) -> Ints:
        """One field of `Shape` by class, [M]."""
        return np.array([getattr(one, name) for one in self.classes], dtype=np.int64)

    def allowed(self, columns: Columns) -> Bools:
        """Which classes each model of the cluster can take, [models, M]."""
        taken = [columns.allowed_models(one) for one in self.classes]
        return np.array(taken, dtype=np.bool_).reshape(len(self.classes), len(columns.model_names)).T


def by_class(counts: Mapping[Shape, int]) -> Mix:
    """All classes of the counted shapes."""
    weights: dict[Shape, int] = {}
    memory: dict[Shape, int] = {}
    for shape, count in counts.items():
        key = replace(shape, memory_mib=0)
        weights[key] = weights.get(key, 0) + count
        memory[key] = memory.get(key, 0) + count * shape.memory_mib
    order = sorted(weights, key=lambda key: (-weights[key], key))
    return Mix(
        classes=tuple(replace(key, memory_mib=round(memory[key] / weights[key])) for key in order),
        weights=tuple(weights[key] for key in order),
    )


def covering(mix: Mix, *, percent: int) -> Mix:
    """The shortest prefix of the classes that covers `percent` of the arrivals."""
    covered, wanted = 0, mix.total * percent
    for count, weight in enumerate(mix.weights, start=1):
        covered += weight * 100
        if covered >= wanted:
            return Mix(classes=mix.classes[:count], weights=mix.weights[:count])
    return mix
