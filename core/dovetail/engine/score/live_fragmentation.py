"""The live fragmentation term: PH or FGD on the workload mix learned from this cluster's arrivals.

No request waits for learning. When the mix moves, `work` recalculates on copies in a thread of the caller's choice; the
result is applied between two requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast
from weakref import proxy

from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fragmentation_term import BestFit, CachedTerm, FragmentationTerm
from dovetail.engine.score.mix_record import MOST_OF_PROFILE, MOST_SHAPES, MixRecord, weighed
from dovetail.engine.score.priced_rows import shape_of
from dovetail.engine.score.priced_term import CapacityMirror, PricedTerm, Pricing
from dovetail.fragmentation import cutting_stock
from dovetail.fragmentation.appraisal import Appraisal
from dovetail.fragmentation.arrivals import LearnedMix, LearningSettings
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.prices import PHSettings, PriceSettings
from dovetail.fragmentation.workload_mix import Mix

# How many arrivals are remembered at least, so that each pod counts once however often it is filtered.
_REMEMBERED: Final = 1 << 14
# The horizon h of the prices for a cluster that pods also leave.
LIVE_HORIZON: Final = 2.0
# Instances of a profile are priced from this number of requests on; before it, best fit is better than a mix of few.
FIRST_OF_PROFILE: Final = 128


class RecentKeys:
    """The latest `count` keys, and up to as many before them, by their hashes of 64 bits: 70 bytes for each.

    Two keys of one hash count as one, which happens among 32,768 keys in one of 30 billion cases.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def __len__(self) -> int:
        return len(self._newer | self._older)

    def add(self, key: str) -> bool:
        """Remember a key as the latest; whether it was not remembered yet."""
        hashed = hash(key)
        if hashed in self._newer:
            return False
        is_new = hashed not in self._older
        self._newer.add(hashed)
        if len(self._newer) >= self._count:
            self._newer, self._older = set(), self._newer
        return is_new


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentationSettings:
    """Which term is in use, and how it learns."""

    policy: FragmentationPolicy = "ph"
    horizon: float = LIVE_HORIZON
    learning: LearningSettings = field(default_factory=LearningSettings)

    @property
    def pricing(self) -> Pricing:
        """How a live cluster is priced; FGD where `bestfit` prices nothing."""
        if self.policy == "ph":
            return Pricing(name="ph", settings=PHSettings(prices=PriceSettings(horizon=self.horizon)))
        return Pricing(name="fgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The cluster's fragmentation F for the learned mix, and its idle capacity, both in GPUs; and the live policy."""

    policy: str
    fragmented_gpus: float
    idle_gpus: float
    arrivals: int

    @property
    def ratio(self) -> float:
        """F relative to the idle capacity, 0 to 1."""
        return self.fragmented_gpus / self.idle_gpus if self.idle_gpus else 0.0


class LiveFragmentation(PricedTerm):
    """A `PricedTerm` that learns its mix. Call its methods from one thread; only `work` may run in another one.

    Requests for MIG instances have, for each profile, a term of their own over the ledger of that profile, by the same
    policy: there, an instance is a device.
    """

    def __init__(self, ledger: Ledger, *, settings: FragmentationSettings | None = None) -> None:
        self._settings = settings or FragmentationSettings()
        self._wanted = self._settings.policy
        if self._settings.policy == "ph" and not cutting_stock.available():
            self._settings = replace(self._settings, policy="bestfit")
        mirror = CapacityMirror(ledger)
        self._learned = LearnedMix(mirror.columns, learning=self._settings.learning)
        self._arrived = RecentKeys(_REMEMBERED)
        pricing, mix = self._settings.pricing, self._learned.mix
        super().__init__(
            ledger, mirror=mirror, pricing=pricing, mix=mix, appraisal=pricing.appraise(mirror.columns, mix=mix)
        )
        self._job: _Recalculation | None = None
        # The generation of the mirror, and the average memory of a device at that generation.
        self._device_mib = (-1, 0)
        self._instances: dict[str, LiveFragmentation] = {}
        # What was learned of profiles that no node has yet.
        self._unused: dict[str, MixRecord] = {}

    # --- the term ----------------------------------------------------------------------------------------------

    @property
    def is_best_fit(self) -> bool:
        """Whether nothing is priced: by configuration, or because the policy's library is missing."""
        return self._settings.policy == "bestfit"

    def follow(self) -> None:
        """Apply the changes of the ledger, and a finished recalculation."""
        if not self.is_best_fit:
            self._follow()

    def priced_profile(self, profile: str) -> "LiveFragmentation | None":
        """The term of a profile's instances; None where nothing is priced, or too few requests have arrived."""
        term = self._term_of_profile(profile)
        return None if term is None or term.arrivals < FIRST_OF_PROFILE else term

    def _term_of_profile(self, profile: str) -> "LiveFragmentation | None":
        """The term that learns the requests for a profile; None where nothing is priced, or no node has instances."""
        seen = self._ledger.of_profile(profile)
        if self.is_best_fit or seen.profile != profile:
            return None
        if profile not in self._instances:
            term = self._instances[profile] = LiveFragmentation(seen, settings=_for_instances(self._settings))
            if (record := self._unused.pop(profile, None)) is not None:
                term.restore(record)
        return self._instances[profile]

    def keep(self, ask: Ask) -> CachedTerm:
        """An empty cache for the term of an ask."""
        return self._plain.keep(ask) if self.is_best_fit else super().keep(ask)

    def alone(self, judged: Judgement, *, key: str) -> Floats:
        """The term of nodes that fit, [n], without the claim `key`."""
        return self._plain.alone(judged, key=key) if self.is_best_fit else super().alone(judged, key=key)

    def device_values(self, free: FreeDevices, *, key: str) -> Sequence[float]:
        """How good each free device of a node is, without the claim `key`; one value for each of `free.slots`."""
        if self.is_best_fit:
            return self._plain.device_values(free, key=key)
        return super().device_values(free, key=key)

    # --- learning ----------------------------------------------------------------------------------------------

    @property
    def live(self) -> str:
        """The policy in use: `ph`, `fgd` or `bestfit`."""
        return "bestfit" if self.is_best_fit else self._pricing.name

    @property
    def shortcoming(self) -> str:
        """Why the configured policy is not in use; empty when it is."""
        if self._wanted == self._settings.policy:
            return ""
        return f"fragmentation_policy {self._wanted} needs HiGHS (the extra `extender`): bestfit takes its place"

    def arrived(self, ask: Ask, *, key: str, count: int = 1) -> None:
        """Count the arrival of a pod, or of `count` pods at once. Each key counts once."""
        if ask.profile != self._ledger.profile:
            if (term := self._term_of_profile(ask.profile)) is not None:
                term.arrived(ask, key=key, count=count)
            return
        if not self._arrived.add(key):
            return
        shape = self._shape_of(ask)
        for _ in range(count):
            if self._learned.observe(shape, columns=self._mirror.columns):
                self._begin()

    @property
    def arrivals(self) -> int:
        """How many arrivals were counted so far."""
        return self._learned.learner.arrivals

    @property
    def all_arrivals(self) -> int:
        """The same with those that request MIG instances."""
        return self.arrivals + sum(term.arrivals for term in self._instances.values())

    def record(self) -> MixRecord:
        """What was learned, for `restore` in another process, and the mix in use, for `term_of_record`."""
        in_use = zip(self._mix.classes, map(float, self._mix.weights), strict=True)
        most = MOST_OF_PROFILE if self._ledger.profile else MOST_SHAPES
        return MixRecord(
            policy=self.live,
            arrivals=self.arrivals,
            in_use=weighed(in_use),
            counted=weighed(self._learned.learner.counted(most=most)),
            instances={**self._unused, **{profile: term.record() for profile, term in self._instances.items()}},
        )

    def restore(self, record: MixRecord) -> None:
        """Continue from a record; `work` recalculates."""
        counted = [(each.shape, each.weight) for each in record.counted]
        self._learned.restore(counted, arrivals=record.arrivals, columns=self.columns)
        self._begin()
        self._unused = dict(record.instances)
        for profile in set(self._unused) & set(self._instances):
            self._instances[profile].restore(self._unused.pop(profile))

    def adopt(self, record: MixRecord) -> None:
        """Judge by exactly the mix in use where the record was made."""
        if self.is_best_fit:
            return
        self.restore(record)
        self._job = None
        self._mix = record.mix
        self._use(self._pricing.appraise(self.columns, mix=self._mix))
        for profile, learned in record.instances.items():
            if (term := self._term_of_profile(profile)) is not None:
                term.adopt(learned)

    def work(self) -> bool:
        """Do one small step of the background work, in any thread. True while there is more to do."""
        job = self._job
        if job is not None and job.made is None:
            job.made = self._pricing.appraise(job.columns, mix=job.mix)
            return True
        return any(term.work() for term in list(self._instances.values()))

    def measure(self) -> Measured:
        """Measure the cluster. Looks at all nodes: call it for a scrape, not for a request."""
        self._follow()
        return Measured(
            policy=self.live,
            fragmented_gpus=float(self._appraisal.gradient.fragmentation().sum()) / WHOLE_MILLI,
            idle_gpus=self.columns.idle_milli / WHOLE_MILLI,
            arrivals=self.arrivals,
        )

    # --- Inside ------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        super().follow()
        self._take_over()
        self._appraisal.refresh()

    def _rebuild(self) -> None:
        self._learned.renew(self.columns)
        self._mix = self._learned.mix
        self._job = None
        super()._rebuild()

    def _take_over(self) -> None:
        job = self._job
        if job is not None and job.made is not None:
            self._job = None
            self._mix = job.mix
            job.made.follow(self.columns)
            self._use(job.made)

    def _begin(self) -> None:
        self._job = _Recalculation(columns=self.columns.copy(), mix=self._learned.mix)

    def _shape_of(self, ask: Ask) -> Shape:
        memory_mib = 0
        if ask.gpu is not None and ask.gpu.names_memory:
            if self._device_mib[0] != self._mirror.generation:
                totals = self._ledger.totals()
                self._device_mib = (self._mirror.generation, totals.memory_mib // max(1, totals.devices))
            memory_mib = self._device_mib[1]
        return shape_of(ask, memory_mib=memory_mib)


def _for_instances(settings: FragmentationSettings) -> FragmentationSettings:
    """The settings of the term of a profile.

    It has no prior: nearly each node with mixed partitions has a shape of its own, and no request takes all its
    instances.
    """
    return replace(settings, learning=replace(settings.learning, prior_probability=0.0))


class _Recalculation:
    """A recalculation on copies. The working thread writes `made` last."""

    def __init__(self, *, columns: Columns, mix: Mix) -> None:
        self.columns = columns
        self.mix = mix
        self.made: Appraisal | None = None


def price_by(term: LiveFragmentation, *, ledger: Ledger) -> None:
    """Judge plans on `ledger` and on its later copies by this term over it."""
    ledger.prices = _Original(term)


def term_of(ledger: Ledger) -> FragmentationTerm:
    """The term by which plans on the ledger are judged: best fit where nothing is priced."""
    prices = ledger.prices
    term = prices.term(ledger) if isinstance(prices, _Original | _Copied) else None
    return BestFit() if term is None else term


class _Original:
    """The prices of a ledger that has its own term."""

    def __init__(self, term: LiveFragmentation) -> None:
        self._term = term

    def term(self, ledger: Ledger) -> PricedTerm | None:  # noqa: ARG002 - as `_Copied.term`
        return None if self._term.is_best_fit else self._term

    def of_copy(self, *, original: Ledger) -> "_Copied":
        return _Copied(self, original=original)


class _Copied:
    """The prices of a copy of `original`, made now: plans on either are judged by the same prices.

    A scheduling cycle plans on copies of the ledger, and of these copies for reservations and preemption. Each copy
    gets the term of its original, with the capacity that it has itself. Its term is made when a plan first needs it,
    because most copies are thrown away unused.
    """

    def __init__(self, prices: "_Original | _Copied", *, original: Ledger) -> None:
        self._prices = prices
        self._original = original
        self._position = original.changes
        self._term: PricedTerm | None = None

    def term(self, ledger: Ledger) -> PricedTerm | None:
        if self._term is None:
            original = self._prices.term(self._original)
            if original is not None:
                changed = {*self._original.touched_since(self._position), *ledger.touched_since(0)}
                # A ledger has its prices, and these must not keep it in memory.
                self._term = original.over(cast("Ledger", proxy(ledger)), changed=changed)
        return self._term

    def of_copy(self, *, original: Ledger) -> "_Copied":
        return _Copied(self, original=original)
