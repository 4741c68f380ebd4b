"""What scheduling cycles remember of each other to save work. Dropping any of it changes no verdict."""

from dataclasses import dataclass, field

from dovetail.queue.model.candidates import Standing
from dovetail.queue.preemption.negative_cache import InVain
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.running import Runs
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCaches:
    """Kept from cycle to cycle of one queue."""

    standing: Standing
    """Where started workers that have no node yet got their room."""
    candidates: Candidacies = field(default_factory=Candidacies)
    """Waiting and starting jobs as candidates."""
    running: Runs = field(default_factory=Runs)
    """Jobs at work: what they hold and when they end."""
    usage: Counts = field(default_factory=Counts)
    """What each job takes of the limits."""
    in_vain: InVain = field(default_factory=InVain)
    """Jobs for which a victim search failed, and on which inputs."""


def caches_for(state: State) -> CycleCaches:
    """Empty caches for a queue over this state."""
    return CycleCaches(standing=Standing(state.store.view.ledger.changed_at))
