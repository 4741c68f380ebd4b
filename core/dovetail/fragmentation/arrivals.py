"""The mix of classes, learned from arrivals: recent ones weigh more.

`Learner` counts; `drift` is the distance of two mixes; `LearnedMix` is the mix at its last significant change; `Online`
is a policy on that mix. What PH keeps per node follows from its mix and is rebuilt only when the mix changes. Checks
become rarer as arrivals add up, and a check that finds no change costs almost nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import CPU, MEMORY, Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.fragmentation.policy import Policy
from dovetail.fragmentation.workload_mix import Mix, by_class, covering

Make = Callable[[Columns, Mix], Policy]

# Probabilities become whole weights, which resolve one arrival in a hundred thousand.
_ONE: Final = 1 << 24
_LARGEST_WEIGHT: Final = 1e12
_FORGOTTEN: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """How the mix is learned.

    - `half_life_arrivals`: after so many arrivals an arrival counts half
    - `covered_percent`: the classes of the mix cover this share of the arrivals
    - `most_shapes`: above this number of shapes, the less frequent half is dropped
    - `most_classes`: the mix keeps the classes with the largest total of devices, at most so many
    - `prior_probability`: weight of the prior pod of each shape of node, which requests the whole node
    - `prior_host_percent`: share of the node's CPU and memory that the prior pod requests
    - `first_look`: number of arrivals before the first check of the mix
    - `looks_factor`: factor between the numbers of arrivals at two checks
    - `longest_between_looks`: the most arrivals between two checks
    - `tolerated_drift`: smallest drift, 0 to 1, that changes the mix
    """

    half_life_arrivals: float = 20_000.0
    covered_percent: int = 99
    most_shapes: int = 16_384
    most_classes: int = 256
    prior_probability: float = 2e-4
    prior_host_percent: int = 94
    first_look: int = 16
    looks_factor: float = 1.5
    longest_between_looks: int = 2048
    tolerated_drift: float = 0.03


class Learner:
    """Counts of arrivals by shape, with decay."""

    def __init__(self, columns: Columns, *, settings: LearningSettings | None = None) -> None:
        self._settings = settings or LearningSettings()
        self._prior: tuple[Shape, ...] = ()
        self.expect(columns)
        self._weights: dict[Shape, float] = {}
        # Each arrival weighs more than the one before, which equals a decay of the older ones.
        self._growth = 2.0 ** (1.0 / self._settings.half_life_arrivals)
        self._weight = 1.0
        self.arrivals = 0

    def expect(self, columns: Columns) -> None:
        """Derive the prior from the shapes of these nodes."""
        self._prior = tuple(whole_nodes(columns, percent=self._settings.prior_host_percent))

    def observe(self, shape: Shape) -> None:
        """Count the arrival of a pod of this shape."""
        self._weights[shape] = self._weights.get(shape, 0.0) + self._weight
        self._weight *= self._growth
        self.arrivals += 1
        if self._weight > _LARGEST_WEIGHT:
            scaled = {one: weight / self._weight for one, weight in self._weights.items()}
            self._weights = {one: weight for one, weight in scaled.items() if weight > _FORGOTTEN}
            self._weight = 1.0
        if len(self._weights) > self._settings.most_shapes:
            heaviest = sorted(self._weights.items(), key=lambda item: -item[1])
            self._weights = dict(heaviest[: self._settings.most_shapes // 2])

    def counted(self, *, most: int) -> list[tuple[Shape, float]]:
        """What was counted by shape, the heaviest first, at most so many. The last arrival weighs about 1."""
        heaviest = sorted(self._weights.items(), key=lambda item: -item[1])[:most]
        return [(shape, weight / self._weight) for shape, weight in heaviest]

    def restore(self, counted: Iterable[tuple[Shape, float]], *, arrivals: int) -> None:
        """Add what was counted before, as `counted` gave it, to what was counted since."""
        for shape, weight in counted:
            self._weights[shape] = self._weights.get(shape, 0.0) + weight
        self.arrivals += arrivals

    def mix(self) -> Mix:
        """The classes that cover `covered_percent` of the arrivals.

        All classes of several devices and the prior are included.
        """
        total = sum(self._weights.values())
        seen = by_class({one: max(1, round(weight / total * _ONE)) for one, weight in self._weights.items()})
        kept = set(covering(seen, percent=self._settings.covered_percent).classes)
        kept |= {one for one in seen.classes if one.gpus > 1}
        weighed = [(one, weight) for one, weight in zip(seen.classes, seen.weights, strict=True) if one in kept]
        weighed.sort(key=lambda item: -item[1] * max(1, item[0].gpus))
        weights = dict(weighed[: self._settings.most_classes])
        prior = round(self._settings.prior_probability * _ONE)
        for one in self._prior if prior else ():
            weights[one] = weights.get(one, 0) + prior
        return by_class(weights)


def whole_nodes(columns: Columns, *, percent: int) -> Iterable[Shape]:
    """For each shape of node with devices, a pod that takes all of them.

    It also takes `percent` of CPU and memory.
    """
    host = columns.capacity[columns.gpus > 0][:, [CPU, MEMORY]]
    kinds = np.unique(np.column_stack([host, columns.gpus[columns.gpus > 0]]), axis=0)
    for cpu_milli, memory_mib, gpus in kinds.tolist():
        yield Shape(
            cpu_milli=cpu_milli * percent // 100,
            memory_mib=memory_mib * percent // 100,
            gpus=gpus,
            share_milli=WHOLE_MILLI,
        )


def drift(old: Mix, *, new: Mix) -> float:
    """The total variation distance of two mixes: 0 for equal, 1 for disjoint ones.

    Ignores memory.
    """
    before, after = _by_key(old), _by_key(new)
    return 0.5 * sum(abs(before.get(key, 0.0) - after.get(key, 0.0)) for key in before.keys() | after.keys())


def _by_key(mix: Mix) -> dict[tuple[int, int, int, tuple[str, ...]], float]:
    return {
        (one.cpu_milli, one.gpus, one.share_milli, one.models): weight / max(1, mix.total)
        for one, weight in zip(mix.classes, mix.weights, strict=True)
    }


class LearnedMix:
    """The mix of the arrivals so far, as of its last significant change."""

    def __init__(self, columns: Columns, *, learning: LearningSettings | None = None) -> None:
        self._learning = learning or LearningSettings()
        self._next_look: float = self._learning.first_look
        self.learner = Learner(columns, settings=self._learning)
        self.mix = self.learner.mix()

    def observe(self, shape: Shape, *, columns: Columns) -> bool:
        """Count the arrival of a pod of this shape. Returns whether `mix` has changed."""
        self.learner.observe(shape)
        seen, learning = self.learner.arrivals, self._learning
        if seen < self._next_look:
            return False
        self._next_look = min(seen * learning.looks_factor, seen + learning.longest_between_looks)
        before = self.mix
        self.renew(columns)
        if drift(before, new=self.mix) > learning.tolerated_drift:
            return True
        self.mix = before
        return False

    def restore(self, counted: Iterable[tuple[Shape, float]], *, arrivals: int, columns: Columns) -> None:
        """Continue from what was counted before."""
        self.learner.restore(counted, arrivals=arrivals)
        seen, learning = self.learner.arrivals, self._learning
        self._next_look = max(
            learning.first_look, min(seen * learning.looks_factor, seen + learning.longest_between_looks)
        )
        self.renew(columns)

    def renew(self, columns: Columns) -> None:
        """Take the current mix, however small its change."""
        self.learner.expect(columns)
        self.mix = self.learner.mix()


class Online:
    """A policy on the learned mix. Every call of `choose` counts as one arrival."""

    def __init__(self, columns: Columns, *, make: Make, learning: LearningSettings | None = None) -> None:
        self._columns = columns
        self._make = make
        self._learned = LearnedMix(columns, learning=learning)
        self._policy = make(columns, self.mix)

    @property
    def mix(self) -> Mix:
        """The mix that the policy uses."""
        return self._learned.mix

    @property
    def policy(self) -> Policy:
        """The policy on the current mix: its `choose` counts no arrival."""
        return self._policy

    @property
    def arrivals(self) -> int:
        """The number of pods that have arrived."""
        return self._learned.learner.arrivals

    def choose(self, shape: Shape) -> Choice | None:
        """The best place for a pod that arrives now, or None when it fits nowhere."""
        if self._learned.observe(shape, columns=self._columns):
            self._policy = self._make(self._columns, self.mix)
        return self._policy.choose(shape)

    def use(self, make: Make) -> None:
        """Switch to another policy."""
        self._make = make
        self._policy = make(self._columns, self.mix)
