"""A fragmentation term by an appraisal of the free capacity of one ledger."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats
from dovetail.engine.score.capacity_mirror import CapacityMirror
from dovetail.engine.score.fragmentation_term import BestFit, CachedTerm, FragmentationTerm
from dovetail.engine.score.priced_rows import PricedRows, device_values, value_of
from dovetail.fragmentation.appraisal import Appraisal, FGDAppraisal
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.prices import PHSettings
from dovetail.fragmentation.workload_mix import Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """How placements are priced: by PH with these settings, or by FGD without."""

    name: str
    settings: PHSettings | None = None

    def appraise(self, columns: Columns, *, mix: Mix) -> Appraisal:
        """The appraisal of placements on these columns, for this mix."""
        if self.settings is None:
            return FGDAppraisal(columns, mix=mix)
        return PHAppraisal(columns, mix=mix, settings=self.settings)


class PricedTerm:
    """A `FragmentationTerm` over a ledger, for a mix and a policy that stay the same.

    `appraisal` is that of `pricing` for the mirror's columns and `mix`. Call the methods from one thread.
    """

    def __init__(
        self, ledger: Ledger, *, mirror: CapacityMirror, pricing: Pricing, mix: Mix, appraisal: Appraisal
    ) -> None:
        self._ledger = ledger
        self._mirror = mirror
        self._pricing = pricing
        self._mix = mix
        self._appraisal = appraisal
        self._seen_mirror = mirror.generation
        self._plain = BestFit()
        self.generation = 0
        # Over a copy of a ledger: the term of the original, its position when this was made, and the rows in which the
        # two ledgers differed by then.
        self._original: tuple[PricedTerm, int, frozenset[int]] | None = None
        self._of_profiles: dict[str, PricedTerm] = {}

    @property
    def appraisal(self) -> Appraisal:
        """The current appraisal of placements; up to date after `follow`."""
        return self._appraisal

    @property
    def columns(self) -> Columns:
        """The free capacity that the appraisal is of."""
        return self._mirror.columns

    def follow(self) -> None:
        """Apply the changes of the ledger."""
        self._mirror.follow()
        if self._seen_mirror != self._mirror.generation:
            self._seen_mirror = self._mirror.generation
            self._rebuild()
        self._appraisal.refresh()

    def of_profile(self, profile: str) -> FragmentationTerm:
        """The term of requests for MIG instances of a profile: best fit where nothing prices these."""
        return self.priced_profile(profile) or self._plain

    def priced_profile(self, profile: str) -> "PricedTerm | None":
        """The priced term of a profile's instances; None where there is none."""
        seen = self._ledger.of_profile(profile)
        if seen.profile != profile or self._original is None:
            return None
        if profile not in self._of_profiles:
            original, position, changed = self._original
            term = original.priced_profile(profile)
            if term is None:
                return None
            # A node has the same row in the ledger of a profile as in the ledger itself.
            since = original.touched_since(position)
            self._of_profiles[profile] = term.over(seen, changed={*changed, *since, *self._ledger.touched_since(0)})
        return self._of_profiles[profile]

    def touched_since(self, position: int) -> Collection[int]:
        """The rows of the ledger that changed since it was at `position`."""
        return self._ledger.touched_since(position)

    def keep(self, ask: Ask) -> CachedTerm:
        """An empty cache for the term of an ask."""
        return PricedRows(self, ask=ask)

    def alone(self, judged: Judgement, *, key: str) -> Floats:
        """The term of nodes that fit, [n], without the claim `key`."""
        self.follow()
        with self._mirror.without(key):
            self._appraisal.refresh()
            return value_of(self, judged=judged, rows=self._ledger.rows(judged.nodes))

    def device_values(self, free: FreeDevices, *, key: str) -> Sequence[float]:
        """How good each free device of a node is, without the claim `key`; one value for each of `free.slots`."""
        ask = free.ask
        if ask.policy == "Spread" or ask.mode != "Fractional":
            return self._plain.device_values(free, key=key)
        # Only this node matters here. Changes elsewhere are applied later, many nodes at once.
        if not self._mirror.has_seen(free.node):
            self.follow()
        own = int(self._ledger.rows([free.node])[0])
        with self._mirror.without(key):
            self._appraisal.refresh()
            return device_values(self, free=free, row=own)

    def over(self, copy: Ledger, *, changed: set[int]) -> "PricedTerm":
        """The term of a copy of the ledger. `changed` are the rows in which the two may differ by now."""
        self.follow()
        mirror = self._mirror.over(copy, changed=changed)
        if mirror.generation == self._mirror.generation:
            appraisal = self._appraisal.over(mirror.columns)
        else:
            appraisal = self._pricing.appraise(mirror.columns, mix=self._mix)
        term = PricedTerm(copy, mirror=mirror, pricing=self._pricing, mix=self._mix, appraisal=appraisal)
        term._original = self, self._ledger.changes, frozenset(changed)
        return term

    def _rebuild(self) -> None:
        """Appraise the nodes again, whose columns the mirror has replaced."""
        self._use(self._pricing.appraise(self.columns, mix=self._mix))

    def _use(self, appraisal: Appraisal) -> None:
        self._appraisal = appraisal
        self.generation += 1
