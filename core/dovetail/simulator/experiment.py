"""The experiment: one policy places the arrivals, one after the other."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dovetail.fragmentation.capacity import Columns, Floats
from dovetail.fragmentation.gradient import Gradient
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.policy import Policy
from dovetail.fragmentation.workload_mix import Mix
from dovetail.simulator.arrivals import Visit

_NOTICE_EVERY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one run.

    Arrays have one entry per arrival, [n]; milli are of the cluster's devices.

    - `policy`: name of the policy
    - `capacity_milli`: capacity of the cluster
    - `at` [n]: time of each arrival, in mean lifetimes
    - `arrived_milli` [n]: what has arrived up to then, including `begun_milli`
    - `allocated_milli` [n]: what is allocated then, including `begun_milli`
    - `fragments_milli`: F of the cluster, by whole percent arrived
    - `refused`: number of refused pods, by kind of pod
    - `placed`: number of placed pods
    - `seconds`: time that the policy and the columns took
    - `begun_milli`: what was taken at the start
    - `lost`: the time of each move, in mean lifetimes, and what it lost, in milli for one lifetime
    """

    policy: str
    capacity_milli: int
    at: Floats
    arrived_milli: Floats
    allocated_milli: Floats
    fragments_milli: dict[int, float]
    refused: dict[str, int]
    placed: int
    seconds: float
    begun_milli: int = 0
    lost: Sequence[tuple[float, float]] = ()

    @property
    def failed(self) -> int:
        """The number of pods that fitted nowhere."""
        return sum(self.refused.values())

    @property
    def placements_per_second(self) -> float:
        """Pods placed per second of the time for all pods, including refused ones."""
        return self.placed / self.seconds if self.seconds > 0 else 0.0


class Moving(Protocol):
    """Moves pods so that a refused one fits, on the experiment's columns.

    It gets each arrival, start and end, and keeps where each pod is. `lost` is that of the outcome.
    """

    lost: list[tuple[float, float]]

    def arrived(self) -> None:
        """Count an arrival."""

    def started(self, key: str, *, choice: Choice, at: float) -> None:
        """A pod has started."""

    def left(self, key: str) -> Choice:
        """A pod has left; returns where it was."""

    def start(self, shape: Shape, *, at: float) -> Choice | None:
        """Move pods so that this one fits; returns its place, or None."""


class _Staying:
    """All pods stay where they are."""

    def __init__(self) -> None:
        self.lost: list[tuple[float, float]] = []
        self._at: dict[str, Choice] = {}

    def arrived(self) -> None:
        """Count nothing."""

    def started(self, key: str, *, choice: Choice, at: float) -> None:  # noqa: ARG002 - the protocol's
        """Keep its place."""
        self._at[key] = choice

    def left(self, key: str) -> Choice:
        """Its place."""
        return self._at.pop(key)

    def start(self, shape: Shape, *, at: float) -> Choice | None:  # noqa: ARG002 - the protocol's
        """No place."""
        return None


def run(
    name: str,
    *,
    policy: Policy,
    columns: Columns,
    visits: Sequence[Visit],
    expected: Mix,
    clock: Callable[[], float],
    notice: Callable[[int], None] = lambda _: None,
    left: Callable[[Choice], None] = lambda _: None,
    moving: Moving | None = None,
) -> Outcome:
    """Let `policy` place `visits` on `columns`.

    `expected` is the mix for which fragmentation is measured, `clock` returns seconds, and `notice` regularly gets the
    number of arrivals. `left` gets each place that a pod has left. `moving` moves pods for those that do not fit.
    """
    moving = moving or _Staying()
    lodging = _Lodging(columns, policy=policy, left=left, moving=moving)
    gradient = Gradient(columns, mix=expected)
    begun = columns.capacity_milli - columns.idle_milli
    arrived = begun + np.cumsum([visit.shape.gpu_milli for visit in visits], dtype=np.float64)
    allocated = np.zeros(len(visits))
    percents = np.rint(100 * arrived / columns.capacity_milli).astype(int).tolist()
    fragments: dict[int, float] = {}
    seconds, started = 0.0, clock()
    for number, visit in enumerate(visits):
        lodging.receive(visit)
        allocated[number] = columns.capacity_milli - columns.idle_milli
        if percents[number] not in fragments:
            seconds += clock() - started
            fragments[percents[number]] = float(gradient.fragmentation().sum())
            started = clock()
        if number % _NOTICE_EVERY == 0:
            notice(number)
    seconds += clock() - started
    notice(len(visits))
    return Outcome(
        policy=name,
        capacity_milli=columns.capacity_milli,
        at=np.array([visit.at for visit in visits]),
        arrived_milli=arrived,
        allocated_milli=allocated,
        fragments_milli=fragments,
        refused=lodging.refused,
        placed=len(visits) - sum(lodging.refused.values()),
        seconds=seconds,
        begun_milli=begun,
        lost=moving.lost,
    )


def kind(shape: Shape) -> str:
    """The words under which a refused pod is counted."""
    if shape.is_share:
        return "share"
    return "no GPU" if not shape.gpus else f"{shape.gpus} GPU{'s' if shape.gpus > 1 else ''}"


class _Lodging:
    """Places pods where the policy says, moves others where that helps, and releases pods when they leave."""

    def __init__(self, columns: Columns, *, policy: Policy, left: Callable[[Choice], None], moving: Moving) -> None:
        self._columns = columns
        self._policy = policy
        self._left = left
        self._moving = moving
        self._staying: list[tuple[float, int]] = []
        self._number = 0
        self.refused: dict[str, int] = {}

    def receive(self, visit: Visit) -> None:
        while self._staying and self._staying[0][0] <= visit.at:
            choice = self._moving.left(str(heapq.heappop(self._staying)[1]))
            self._columns.release(choice)
            self._left(choice)
        self._moving.arrived()
        found = self._policy.choose(visit.shape) or self._moving.start(visit.shape, at=visit.at)
        if found is None:
            word = kind(visit.shape)
            self.refused[word] = self.refused.get(word, 0) + 1
            return
        self._columns.place(found)
        if visit.leaves_at != np.inf:
            self._number += 1
            self._moving.started(str(self._number), choice=found, at=visit.at)
            heapq.heappush(self._staying, (visit.leaves_at, self._number))
