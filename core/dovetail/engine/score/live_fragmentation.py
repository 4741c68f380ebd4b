"""The live fragmentation term: PH or FGD on the mix learned from the arrivals that are seen here.

No request waits for learning. A mix that has moved, or another policy that the tuner prefers, is worked out by `work`
in whatever thread the caller has for it, on copies, and taken over between two requests.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.capacity_mirror import Mirror
from dovetail.engine.score.fragmentation_term import BestFit, Kept
from dovetail.engine.score.priced_rows import PricedRows, device_values, shape_of, value_of
from dovetail.fragmentation import cutting_stock
from dovetail.fragmentation.appraisal import Appraisal
from dovetail.fragmentation.arrivals import LearnedMix, LearningSettings
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.prices import PHSettings, PriceSettings
from dovetail.fragmentation.tuner import Candidate, Tuner, TunerSettings, candidates
from dovetail.fragmentation.workload_mix import Mix

# Pods whose arrival is remembered, so that each counts once however often it is asked about.
_REMEMBERED: Final = 1 << 15
# h of the prices where pods also leave.
LIVE_HORIZON: Final = 2.0
_REPLAYED_AT_A_TIME: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentSettings:
    """Which term is used, and how it learns."""

    policy: FragmentationPolicy = "ph"
    horizon: float = LIVE_HORIZON
    learning: LearningSettings = field(default_factory=LearningSettings)
    tuning: TunerSettings = field(default_factory=TunerSettings)

    @property
    def priced(self) -> PHSettings:
        """PH as it is set for a live cluster."""
        return PHSettings(prices=PriceSettings(horizon=self.horizon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The cluster's fragmentation F for the mix learned so far, and what is idle, in GPUs; and which term is live."""

    policy: str
    fragmented_gpus: float
    idle_gpus: float
    arrivals: int

    @property
    def ratio(self) -> float:
        """F as a part of what is idle, 0 to 1."""
        return self.fragmented_gpus / self.idle_gpus if self.idle_gpus else 0.0


class Fragments:
    """A fragmentation term (`Tidy`) over a ledger. Its methods belong to one thread, but for `work`."""

    def __init__(
        self, ledger: Ledger, *, settings: FragmentSettings | None = None, random: np.random.Generator | None = None
    ) -> None:
        self._ledger = ledger
        self._settings = settings or FragmentSettings()
        self._wanted = self._settings.policy
        if self._settings.policy in {"ph", "tuned"} and not cutting_stock.available():
            self._settings = replace(self._settings, policy="bestfit")
        self._mirror = Mirror(ledger)
        self._learned = LearnedMix(self._mirror.columns, learning=self._settings.learning)
        self._arrived: OrderedDict[str, None] = OrderedDict()
        self._candidates = candidates(self._settings.priced)
        self._tuner = self._new_tuner(random or np.random.default_rng())
        self._next_round = self._settings.tuning.first_round
        self._candidate = self._candidates["ph" if self._settings.policy in {"ph", "tuned"} else "fgd"]
        self._appraisal = self._candidate.appraise(self._mirror.columns, self._learned.mix)
        self._seen_mirror = self._mirror.generation
        self._job: _Job | None = None
        self._plain = BestFit()
        # Memory of a device on the average, and the generation of the mirror at which it was so.
        self._device_mib = (-1, 0)
        self.generation = 0

    # --- the term ----------------------------------------------------------------------------------------------

    @property
    def appraisal(self) -> Appraisal:
        """What placements are worth now; it is up to date after `follow`."""
        return self._appraisal

    @property
    def columns(self) -> Columns:
        """The free capacity that the appraisal looks at."""
        return self._mirror.columns

    def follow(self) -> None:
        """Come up to date with the ledger, and take over what was worked out meanwhile."""
        if self._settings.policy != "bestfit":
            self._follow()

    def keep(self, ask: Ask) -> Kept:
        """A place to keep the term of an ask."""
        if self._settings.policy == "bestfit":
            return self._plain.keep(ask)
        return PricedRows(self, ask)

    def alone(self, judged: Judgement, *, key: str) -> Floats:
        """The term of nodes that fit, [n], as if the claim `key` did not stand."""
        if self._settings.policy == "bestfit":
            return self._plain.alone(judged, key=key)
        self._follow()
        with self._mirror.without(key):
            self._appraisal.refresh()
            return value_of(self, judged, rows=self._ledger.rows(judged.nodes))

    def device_values(self, judged: Judgement, row: int, *, key: str) -> Floats:
        """How good each device of a node is, [d]; of those that are not free it means nothing."""
        ask = judged.ask
        if self._settings.policy == "bestfit" or ask.policy == "Spread" or ask.mode != "Fractional":
            return self._plain.device_values(judged, row, key=key)
        node = judged.nodes[row]
        # Only this node is looked at: what has changed elsewhere is taken over later, many nodes at once.
        if not self._mirror.has_seen(node):
            self._follow()
        own = int(self._ledger.rows([node])[0])
        with self._mirror.without(key):
            self._appraisal.refresh()
            return device_values(self, judged, row=own, at=row)

    # --- learning ----------------------------------------------------------------------------------------------

    @property
    def live(self) -> str:
        """Which term is in use: `ph`, `fgd` or `bestfit`, or the variant of PH that the tuner prefers."""
        return self._candidate.name if self._settings.policy != "bestfit" else "bestfit"

    @property
    def shortcoming(self) -> str:
        """Why another term is in use than was asked for; empty when it is not."""
        if self._wanted == self._settings.policy:
            return ""
        return f"fragmentation_policy {self._wanted} needs HiGHS (the extra `extender`): bestfit takes its place"

    def arrived(self, ask: Ask, *, key: str) -> None:
        """A pod asks this. Each key counts once."""
        if key in self._arrived:
            return
        self._arrived[key] = None
        if len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)
        shape = self._shape_of(ask)
        if self._tuner is not None:
            self._tuner.observe(shape)
        if self._learned.observe(shape, columns=self._mirror.columns):
            self._begin(self._candidate)
        self._tune()

    def work(self) -> bool:
        """A small part of what can be done beside placements, in any thread. True while there is more to do."""
        job = self._job
        if job is not None and job.made is None:
            job.made = job.candidate.appraise(job.columns, job.mix)
            return True
        return self._tuner is not None and self._tuner.step(arrivals=_REPLAYED_AT_A_TIME)

    def measure(self) -> Measured:
        """The cluster as it is now. Looks at all nodes: for a scrape, not for a request."""
        self._follow()
        return Measured(
            policy=self.live,
            fragmented_gpus=float(self._appraisal.gradient.fragmentation().sum()) / WHOLE_MILLI,
            idle_gpus=self.columns.idle_milli / WHOLE_MILLI,
            arrivals=self._learned.learner.arrivals,
        )

    # --- inside ------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        self._mirror.follow()
        if self._seen_mirror != self._mirror.generation:
            self._seen_mirror = self._mirror.generation
            self._learned.renew(self.columns)
            self._use(self._candidate.appraise(self.columns, self._learned.mix))
            self._job = None
        self._take_over()
        self._appraisal.refresh()

    def _take_over(self) -> None:
        job = self._job
        if job is not None and job.made is not None:
            self._job = None
            self._candidate = job.candidate
            job.made.follow(self.columns)
            self._use(job.made)

    def _use(self, appraisal: Appraisal) -> None:
        self._appraisal = appraisal
        self.generation += 1

    def _begin(self, candidate: Candidate) -> None:
        self._job = _Job(candidate, columns=self.columns.copy(), mix=self._learned.mix)

    def _tune(self) -> None:
        """Begin a round of replays when it is time, and work towards what the last one preferred."""
        tuner = self._tuner
        if tuner is None or tuner.running:
            return
        if tuner.best != self._candidate.name and self._job is None:
            self._begin(self._candidates[tuner.best])
        if self._learned.learner.arrivals >= self._next_round:
            self._next_round = self._learned.learner.arrivals + self._settings.tuning.arrivals_between_rounds
            tuner.begin(self.columns, self._learned.mix)

    def _new_tuner(self, random: np.random.Generator) -> Tuner | None:
        if self._settings.policy != "tuned":
            return None
        makes = {name: one.make for name, one in self._candidates.items()}
        return Tuner(makes, random=random, settings=self._settings.tuning)

    def _shape_of(self, ask: Ask) -> Shape:
        memory_mib = 0
        if ask.gpu is not None and ask.gpu.memory_mib is not None:
            if self._device_mib[0] != self._mirror.generation:
                totals = self._ledger.totals()
                self._device_mib = (self._mirror.generation, totals.memory_mib // max(1, totals.devices))
            memory_mib = self._device_mib[1]
        return shape_of(ask, memory_mib=memory_mib)


class _Job:
    """A reckoning that is to be worked out on a copy; `made` is written last, by whoever did it."""

    def __init__(self, candidate: Candidate, *, columns: Columns, mix: Mix) -> None:
        self.candidate = candidate
        self.columns = columns
        self.mix = mix
        self.made: Appraisal | None = None
