"""Places workers of a gang whose nodes failed next to the workers that go on. The ledger is unchanged afterwards."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.gang.shortage import workers_on_empty
from dovetail.engine.gang.spread_counts import SpreadCounts
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.topology import HOSTNAME, Spread, Topology
from dovetail.engine.score.fit_cache import FitCache, best_claim


def replace_lost(
    ledger: Ledger,
    *,
    ask: Ask,
    lost: Collection[int],
    others: Mapping[int, str],
    key: str,
    nodes: Sequence[str],
    fit_cache: FitCache,
) -> dict[int, Claim] | None:
    """A claim for each of the `lost` workers, keyed `key/WORKER`, so that the rules of the whole gang hold.

    `others` has the node of each worker that goes on, and `nodes` those that the job may use. None where a worker fits
    on no node that the rules allow: workers that go on are never moved.
    """
    gang = _Gang(ledger, ask=ask, nodes=nodes)
    for node in others.values():
        gang.spread.add(node)
    placed, claims = dict(others), dict[int, Claim]()
    try:
        for worker in sorted(lost):
            claim = None
            for allowed in gang.choices(worker, placed=placed):
                claim = best_claim(ledger, ask=ask.alone, nodes=allowed, key=f"{key}/{worker}", fit_cache=fit_cache)
                if claim is not None:
                    break
            if claim is None:
                return None
            ledger.commit(claim)
            claims[worker], placed[worker] = claim, claim.node
            gang.spread.add(claim.node)
        return claims
    finally:
        for claim in claims.values():
            ledger.release(claim.key)


class _Gang:
    """The rules of a gang, over the nodes that it may use."""

    def __init__(self, ledger: Ledger, *, ask: Ask, nodes: Sequence[str]) -> None:
        self._ledger = ledger
        self._topology = ask.topology or Topology(levels=())
        self._nodes = nodes
        apart = (Spread(label=HOSTNAME, most=1),) if ask.apart else ()
        self.spread = _Spread(ledger, ask=ask, spreads=(*self._topology.spreads, *apart), nodes=nodes)

    def choices(self, worker: int, *, placed: Mapping[int, str]) -> list[list[str]]:
        """The nodes that the rules allow for this worker: first those in the preferred domain, then all."""
        topology, allowed = self._topology, self.spread.allowed()
        if topology.required:
            allowed = self._in_domain_of(placed.values(), level=topology.required, nodes=allowed)
        if size := topology.group_size:
            group = [node for other, node in placed.items() if other // size == worker // size]
            allowed = self._in_domain_of(group, level=topology.group_level, nodes=allowed)
        if not topology.preferred:
            return [allowed]
        return [self._in_domain_of(placed.values(), level=topology.preferred, nodes=allowed), allowed]

    def _in_domain_of(self, placed: Iterable[str], *, level: str, nodes: Sequence[str]) -> list[str]:
        """Of these nodes, those in one domain with the placed ones; those in any domain if no place is known."""
        path = self._topology.path(level)
        places = (self._ledger.place_of(node, labels=path) for node in placed)
        # A node that is gone has no labels any more.
        domain = next((place for place in places if place[-1]), None)
        found = [(node, self._ledger.place_of(node, labels=path)) for node in nodes]
        return [node for node, place in found if (place[-1] if domain is None else place == domain)]


class _Spread:
    """How the workers are spread so far."""

    def __init__(self, ledger: Ledger, *, ask: Ask, spreads: Sequence[Spread], nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._position = {node: at for at, node in enumerate(nodes)}
        judged = Judgement(ledger, ask=ask.alone, nodes=nodes, key="")
        counted = workers_on_empty(judged, gpu=judged.gpu) > 0
        self._counts = SpreadCounts(ledger, spreads=spreads, rows=np.where(counted, ledger.rows(nodes), -1))

    def add(self, node: str) -> None:
        """Count a worker."""
        if node in self._position:
            self._counts.add(self._position[node])

    def allowed(self) -> list[str]:
        """The nodes that may take the next worker."""
        mask = np.broadcast_to(self._counts.allowed(), len(self._nodes))
        return [self._nodes[at] for at in np.flatnonzero(mask).tolist()]
