"""Places workers one after the other, each on the best node that the ones before leave it."""

from collections.abc import Sequence

from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache


def best_claim(ledger: Ledger, *, ask: Ask, nodes: Sequence[str], key: str, fit_cache: FitCache) -> Claim | None:
    """The claim `key` of one worker on the best of `nodes`; None where it fits on none."""
    assert ledger.claim(key) is None, "a plan's keys are its own"
    for node in fit_cache.best(ask, nodes=nodes, key=key, limit=1):
        found = fit_cache.check(ask, node=node, key=key)
        assert isinstance(found, Fit), "a node that fits has devices"
        return found.claim
    return None
