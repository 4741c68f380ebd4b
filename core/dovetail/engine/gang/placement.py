"""Places all workers of one job on a ledger, or says in one sentence why not. The ledger is unchanged afterwards."""

from collections.abc import Sequence

from dovetail.engine.filter.fit import Fit, Judgement
from dovetail.engine.gang.in_domains import GangByTopology
from dovetail.engine.gang.rank_order import by_place
from dovetail.engine.gang.shortage import Shortage, shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache, best_claim


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
    fit_cache, least, topology = fit_cache or FitCache(ledger), least or workers, ask.topology
    if topology is not None and topology.is_bound and ask.gpu is not None:
        return GangByTopology(
            ledger, ask=ask, workers=workers, key=key, nodes=nodes, fit_cache=fit_cache, least=least
        ).place()
    how = _place_apart if ask.apart else _place_anywhere
    found = how(ledger, ask=ask.alone, workers=workers, key=key, nodes=nodes, fit_cache=fit_cache, least=least)
    if isinstance(found, Shortage) or topology is None:
        return found
    return by_place(found, topology=topology, ledger=ledger, key=key)


def _place_anywhere(
    ledger: Ledger, *, ask: Ask, workers: int, key: str, nodes: Sequence[str], fit_cache: FitCache, least: int
) -> list[Claim] | Shortage:
    """Claims for the workers one after the other, on any of the nodes."""
    claims: list[Claim] = []
    try:
        while len(claims) < workers:
            claim = best_claim(ledger, ask=ask, nodes=nodes, key=f"{key}/{len(claims)}", fit_cache=fit_cache)
            if claim is None:
                break
            claims.append(claim)
            ledger.commit(claim)
        after = None if len(claims) >= least else Judgement(ledger, ask=ask, nodes=nodes, key="")
    finally:
        for claim in claims:
            ledger.release(claim.key)
    if after is None:
        return claims
    # With no worker on it, the ledger is as it was.
    now = Judgement(ledger, ask=ask, nodes=nodes, key="") if claims else after
    return shortage(now, after=after, workers=least, placed=len(claims))


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
