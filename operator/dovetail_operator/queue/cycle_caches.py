"""What scheduling cycles cache for each other. Dropping any of it changes no verdict."""

from dataclasses import dataclass, field

from dovetail.queue.backfill.residual import KnownShortages
from dovetail.queue.model.candidates import ClaimCache
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail_operator.state.candidate_cache import Candidacies, Runs
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCaches:
    """The caches of one queue, kept from cycle to cycle."""

    standing: ClaimCache
    """Where admitted workers without a node got their room."""
    candidates: Candidacies = field(default_factory=Candidacies)
    """Waiting and starting jobs as candidates."""
    running: Runs = field(default_factory=Runs)
    """Running jobs: what they hold and when they end."""
    usage: Counts = field(default_factory=Counts)
    """What each job takes of the quotas."""
    shortages: KnownShortages = field(default_factory=KnownShortages)
    """Which shapes of jobs have no room, while the ledger stays the same."""
    negative_cache: NegativeCache = field(default_factory=NegativeCache)
    """The negative cache for preemption: failed victim searches and their inputs, by job."""

    def clear(self) -> None:
        """Drop what depends on the configuration."""
        self.candidates.clear()
        self.running.clear()
        self.negative_cache.clear()


def caches_for(state: State) -> CycleCaches:
    """Empty caches for a queue over this state."""
    return CycleCaches(standing=ClaimCache(state.store.view.ledger.changed_at))
