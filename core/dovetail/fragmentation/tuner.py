"""The best of several policies for this cluster, by replays of arrivals on a copy of it.

Where CPU is short, or nearly all pods take whole devices, PH can be worse than FGD. No rule predicts that, but a replay
shows it. `Tuner` replays in small steps, on copies only: the caller chooses the thread and the time, and no placement
waits for it. `SelfTuned` is a policy that uses the result of the last round.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fragmentation.appraisal import Appraisal, FGDAppraisal
from dovetail.fragmentation.arrivals import Make, Online
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.fgd import fgd
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.policy import Policy
from dovetail.fragmentation.priced_headroom import PH
from dovetail.fragmentation.prices import PHSettings
from dovetail.fragmentation.workload_mix import Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerSettings:
    """How a round of replays works.

    A round replays arrivals drawn from the `recent` last ones until they request `asked_percent` of the idle devices.
    Another policy must place more by `margin_percent` of the capacity to win. A sample of `most_nodes` stands for a
    large cluster.
    """

    recent: int = 4096
    most_nodes: int = 400
    asked_percent: int = 115
    margin_percent: float = 0.1
    first_round: int = 512
    arrivals_between_rounds: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate of a tuner: PH with these settings, or FGD without."""

    name: str
    settings: PHSettings | None = None

    def make(self, columns: Columns, mix: Mix) -> Policy:
        """The policy."""
        return fgd(columns, mix=mix) if self.settings is None else PH(columns, mix=mix, settings=self.settings)

    def appraise(self, columns: Columns, *, mix: Mix) -> Appraisal:
        """Its appraisal, for a caller that decides itself what fits."""
        if self.settings is None:
            return FGDAppraisal(columns, mix=mix)
        return PHAppraisal(columns, mix=mix, settings=self.settings)


def candidates(settings: PHSettings | None = None) -> dict[str, Candidate]:
    """The candidates of a tuner: PH as set, three variants of its weights, and FGD.

    The first is the default.
    """
    default = settings or PHSettings()
    variants: dict[str, PHSettings | None] = {
        "ph": default,
        "ph without newsvendor": replace(default, prices=replace(default.prices, newsvendor=0.0)),
        "ph with double scarcity": replace(default, prices=replace(default.prices, scarcity=0.3)),
        "ph with half scarcity": replace(default, prices=replace(default.prices, scarcity=0.075)),
        "fgd": None,
    }
    return {name: Candidate(name=name, settings=one) for name, one in variants.items()}


class Tuner:
    """Rounds of replays, in steps.

    `best` is the name of the policy that won the last complete round.
    """

    def __init__(
        self, makes: Mapping[str, Make], *, random: np.random.Generator, settings: TunerSettings | None = None
    ) -> None:
        self._makes = dict(makes)
        self._random = random
        self._settings = settings or TunerSettings()
        self._recent: deque[Shape] = deque(maxlen=self._settings.recent)
        self._replays: list[_Replay] = []
        self._margin_milli = 0.0
        self.best = next(iter(self._makes))

    @property
    def running(self) -> bool:
        """Whether a round is in progress."""
        return bool(self._replays)

    def observe(self, shape: Shape) -> None:
        """Record the arrival of a pod of this shape."""
        self._recent.append(shape)

    def begin(self, columns: Columns, *, mix: Mix) -> None:
        """Start a round from the current cluster.

        Copies the columns and does not read them afterwards.
        """
        count = min(len(columns), self._settings.most_nodes)
        rows = np.sort(self._random.choice(len(columns), size=count, replace=False))
        some = columns.subset(rows)
        drawn = self._draw(some.idle_milli * self._settings.asked_percent // 100)
        self._margin_milli = some.capacity_milli * self._settings.margin_percent / 100
        self._replays = [
            _Replay(name, make=make, columns=some.copy(), mix=mix, arrivals=drawn) for name, make in self._makes.items()
        ]

    def step(self, *, arrivals: int = 64) -> bool:
        """Replay a few more arrivals.

        Returns whether the round goes on; at its end `best` is up to date.
        """
        open_replays = [one for one in self._replays if not one.over]
        if open_replays:
            open_replays[0].advance(arrivals)
        if self._replays and all(one.over for one in self._replays):
            self._conclude()
        return self.running

    def _conclude(self) -> None:
        placed = {one.name: one.placed_milli for one in self._replays}
        winner = max(placed, key=lambda name: placed[name])
        if placed[winner] > placed[self.best] + self._margin_milli:
            self.best = winner
        self._replays = []

    def _draw(self, wanted_milli: int) -> list[Shape]:
        recent = list(self._recent)
        if not any(shape.gpus for shape in recent):
            return []
        drawn: list[Shape] = []
        asked = 0
        while asked < wanted_milli:
            shape = recent[int(self._random.integers(len(recent)))]
            drawn.append(shape)
            asked += shape.gpu_milli
        return drawn


class _Replay:
    """One candidate on its copy."""

    def __init__(self, name: str, *, make: Make, columns: Columns, mix: Mix, arrivals: Sequence[Shape]) -> None:
        self.name = name
        self.placed_milli = 0
        self._make = make
        self._mix = mix
        self._columns = columns
        self._arrivals = deque(arrivals)
        self._policy: Policy | None = None

    @property
    def over(self) -> bool:
        return not self._arrivals

    def advance(self, arrivals: int) -> None:
        if self._policy is None:
            self._policy = self._make(self._columns, self._mix)
        for _ in range(min(arrivals, len(self._arrivals))):
            choice = self._policy.choose(self._arrivals.popleft())
            if choice is not None:
                self._columns.place(choice)
                self.placed_milli += choice.shape.gpu_milli


class SelfTuned:
    """The candidate that won the last round of replays, on a learned mix.

    `choose` counts an arrival.

    `step` replays and may run in another thread: it reads copies only. `choose` starts rounds and takes over their
    result, which costs a copy of some columns. With `arrivals_per_choice`, `choose` also calls `step`.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        random: np.random.Generator,
        settings: PHSettings | None = None,
        tuning: TunerSettings | None = None,
        arrivals_per_choice: int = 0,
    ) -> None:
        self._columns = columns
        self._makes = {name: one.make for name, one in candidates(settings).items()}
        self._tuning = tuning or TunerSettings()
        self._arrivals_per_choice = arrivals_per_choice
        self._tuner = Tuner(self._makes, random=random, settings=self._tuning)
        self._online = Online(columns, make=self._makes[self._tuner.best])
        self._next_round = self._tuning.first_round
        self.used = self._tuner.best

    def choose(self, shape: Shape) -> Choice | None:
        """The best place for a pod that arrives now, or None when it fits nowhere."""
        self._tuner.observe(shape)
        choice = self._online.choose(shape)
        if not self._tuner.running:
            self._take_over()
        if self._arrivals_per_choice:
            self.step(arrivals=self._arrivals_per_choice)
        return choice

    def step(self, *, arrivals: int = 64) -> bool:
        """Replay a few more arrivals. Returns whether there is more to replay."""
        return self._tuner.step(arrivals=arrivals)

    def _take_over(self) -> None:
        if self._tuner.best != self.used:
            self.used = self._tuner.best
            self._online.use(self._makes[self.used])
        if self._online.arrivals >= self._next_round:
            self._next_round = self._online.arrivals + self._tuning.arrivals_between_rounds
            self._tuner.begin(self._columns, mix=self._online.mix)
