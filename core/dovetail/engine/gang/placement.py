"""Places all workers of one job on a ledger, or says in one sentence why not. The ledger is unchanged afterwards."""

from collections.abc import Sequence

from dovetail.engine.filter.fit import Fit, Judgement
from dovetail.engine.gang.shortage import Shortage, shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache


def place(
    ledger: Ledger,
    *,
    ask: Ask,
    workers: int,
    key: str,
    nodes: Sequence[str] | None = None,
    fit_cache: FitCache | None = None,
    least: int | None = None,
) -> list[Claim] | Shortage:
    """Claims for all workers, keyed `key/0`, `key/1`, and so on; or the shortage. All workers or none.

    `least` allows fewer workers: as many as fit, but at least that many. `nodes` are those that the job may use; all
    by default. A `fit_cache` of the same ledger saves the work that similar jobs have in common. The ledger is
    unchanged when this returns: workers that are tried on it are released again.
    """
    nodes = ledger.nodes() if nodes is None else nodes
    fit_cache = fit_cache or FitCache(ledger)
    claims: list[Claim] = []
    if ask.apart:
        return _place_apart(
            ledger, ask=ask, workers=workers, key=key, nodes=nodes, fit_cache=fit_cache, least=least or workers
        )
    try:
        while len(claims) < workers:
            claim = _best(ledger, ask=ask, nodes=nodes, key=f"{key}/{len(claims)}", fit_cache=fit_cache)
            if claim is None:
                break
            claims.append(claim)
            ledger.commit(claim)
        after = None if len(claims) >= (least or workers) else Judgement(ledger, ask=ask, nodes=nodes, key="")
    finally:
        for claim in claims:
            ledger.release(claim.key)
    if after is None:
        return claims
    now = Judgement(ledger, ask=ask, nodes=nodes, key="")
    return shortage(now, after=after, workers=least or workers, placed=len(claims))


def _place_apart(
    ledger: Ledger, *, ask: Ask, workers: int, key: str, nodes: Sequence[str], fit_cache: FitCache, least: int
) -> list[Claim] | Shortage:
    """The same for workers that need a node each: they do not compete, so the best nodes for one worker are enough."""
    claims = []
    for number, node in enumerate(fit_cache.best(ask, nodes=nodes, key=f"{key}/0", limit=workers)):
        found = fit_cache.check(ask, node=node, key=f"{key}/{number}")
        assert isinstance(found, Fit), "a node that fits has devices"
        claims.append(found.claim)
    if len(claims) >= least:
        return claims
    now = Judgement(ledger, ask=ask, nodes=nodes, key="")
    return shortage(now, after=now, workers=least, placed=len(claims))


def _best(ledger: Ledger, *, ask: Ask, nodes: Sequence[str], key: str, fit_cache: FitCache) -> Claim | None:
    assert ledger.claim(key) is None, "a plan's keys are its own"
    for node in fit_cache.best(ask, nodes=nodes, key=key, limit=1):
        found = fit_cache.check(ask, node=node, key=key)
        assert isinstance(found, Fit), "a node that fits has devices"
        return found.claim
    return None
