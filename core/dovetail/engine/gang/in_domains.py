"""Places a gang by the levels of the network: in one domain, in groups, or spread over domains.

A level is tried from the preferred one to the required one. Of the domains of a level that have room, the gang takes
the one whose use costs the future least (`domain_loss`). Where a gang takes several domains, it takes as few as
possible.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dovetail.engine.filter.device_choice import choose_for_several
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.gang import domain_loss
from dovetail.engine.gang.rank_order import by_place
from dovetail.engine.gang.shortage import Shortage, workers_on_empty
from dovetail.engine.gang.spread_counts import SpreadCounts
from dovetail.engine.gang.topology_shortage import shortage_by_topology
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_labels import NO_DOMAIN
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.columns import Bools, Floats, Ints
from dovetail.engine.model.topology import HOSTNAME, Spread, Topology
from dovetail.engine.score.fit_cache import FitCache, best_claim
from dovetail.gpu.request import WHOLE_MILLI


def seats(judged: Judgement) -> Ints:
    """How many workers each node could take, [n]: exact for whole devices of one container, else an upper bound."""
    columns, ask = judged.columns, judged.ask
    assert ask.gpu is not None, "only gangs with devices have seats"
    each = ask.gpu.count + sum(part.count for part in ask.more) if ask.mode == "Exclusive" else ask.gpu.count
    places = np.where(judged.free_devices, _places(judged), 0)
    most = places.sum(axis=1) // each
    while True:
        # A device serves a worker once.
        fewer = np.minimum(places, most[:, np.newaxis]).sum(axis=1) // each
        if (fewer >= most).all():
            break
        most = fewer
    for amount, free in ((ask.cpu_milli, columns.cpu_free), (ask.memory_mib, columns.memory_free)):
        if amount:
            most = np.minimum(most, free // amount)
    most = np.minimum(most, 1 if ask.apart else columns.pods_free)
    return np.where(judged.fits, np.maximum(0, most), 0)


def _places(judged: Judgement) -> Ints:
    """How many more such tenants each free device takes, [n, d]."""
    ask, columns = judged.ask, judged.columns
    if ask.mode == "Exclusive":
        return np.ones_like(columns.total)
    if ask.mode == "TimeShared":
        places = judged.ledger.limits.turns_per_device - columns.tenants
    else:
        places = columns.share_left // max(1, min(WHOLE_MILLI, judged.gpu.share_milli))
    by_memory = judged.free_mib // np.maximum(1, judged.needed_mib)
    # Tenants that move to the host in turns do not add up.
    places = np.where(judged.movable[:, np.newaxis], places, np.minimum(places, by_memory))
    if ask.workload == "Training":
        places = np.minimum(places, columns.training_limit - columns.training)
    elif ask.workload == "Inference":
        places = np.minimum(places, columns.inference_limit - columns.inference)
    return np.maximum(0, places)


# Seats are an upper bound for shares, so that a domain may turn out to have fewer: so many domains are tried.
_TRIES: Final = 8
# In place of a level: all nodes are one domain.
ANYWHERE: Final = ""


class GangByTopology:
    """One gang, and the nodes that it may use. The ledger is unchanged when a method returns."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        ask: Ask,
        workers: int,
        key: str,
        nodes: Sequence[str],
        fit_cache: FitCache,
        least: int,
    ) -> None:
        assert ask.topology is not None, "only gangs with rules come here"
        self.ledger = ledger
        self.topology: Topology = ask.topology
        self.ask = ask.alone
        self.workers = workers
        self.least = least
        apart = (Spread(label=HOSTNAME, most=1),) if ask.apart else ()
        self._spreads = (*self.topology.spreads, *apart)
        self.nodes = nodes
        self.now = Judgement(ledger, ask=self.ask, nodes=nodes, key="")
        self.seats = seats(self.now)
        self._key = key
        self._fit_cache = fit_cache
        self._rows = ledger.rows(nodes)
        self._position = {node: at for at, node in enumerate(nodes)}
        self._codes: dict[str, Ints] = {}
        self._value: Floats | None = None
        if self.topology.required:
            # A narrower domain, such as a host, may lie in no domain of the required level.
            self.seats = np.where(self.codes(self.topology.required) == NO_DOMAIN, 0, self.seats)

    def place(self) -> list[Claim] | Shortage:
        """Claims for all workers in the order of their places, or for at least `least`; else why there are none."""
        for level in self._levels():
            for domain in self._able(level):
                claims = self._in_domain(level, domain=domain, workers=self.workers, least=self.workers)
                if claims is not None:
                    return self._ordered(claims)
        if self.least < self.workers:
            claims = self._fewer()
            if claims is not None:
                return self._ordered(claims)
        return shortage_by_topology(self)

    # --- Domains -----------------------------------------------------------------------------------------------

    def codes(self, level: str) -> Ints:
        """The domain of each node at a level, [n]; `NO_DOMAIN` for none."""
        if level not in self._codes:
            if level == ANYWHERE:
                self._codes[level] = np.zeros(len(self.nodes), dtype=np.int64)
            else:
                self._codes[level] = self.ledger.domains(self.topology.path(level)).at(self._rows)
        return self._codes[level]

    def capacity(self, level: str, *, seats: Ints | None = None) -> Ints:
        """How many workers each domain of a level takes, [domains], in whole groups where the gang has groups.

        `seats` [n] is how many workers each node takes; by default as many as now.
        """
        seats, codes = self.seats if seats is None else seats, self.codes(level)
        size = self.topology.group_size
        if not size:
            inside = codes != NO_DOMAIN
            return np.bincount(codes[inside], weights=seats[inside]).astype(np.int64)
        groups = self.codes(self.topology.group_level)
        inside = (codes != NO_DOMAIN) & (groups != NO_DOMAIN)
        if not inside.any():
            return np.zeros(0, dtype=np.int64)
        # A domain of the groups' level lies in one of each wider level.
        domain_of = np.zeros(int(groups.max()) + 1, dtype=np.int64)
        domain_of[groups[inside]] = codes[inside]
        whole = np.bincount(groups[inside], weights=seats[inside]).astype(np.int64) // size * size
        return np.bincount(domain_of[: len(whole)], weights=whole).astype(np.int64)

    def _levels(self) -> Iterator[str]:
        """The levels to try: from the preferred one to the required one, or to all nodes."""
        topology = self.topology
        names = [level.name for level in topology.levels]
        if topology.preferred:
            first = names.index(topology.required) if topology.required else 0
            yield from reversed(names[first : names.index(topology.preferred) + 1])
            if not topology.required:
                yield ANYWHERE
        else:
            yield topology.required or ANYWHERE

    def _able(self, level: str) -> list[int]:
        """The first domains to try, those with the least loss first."""
        capacity = self.capacity(level)
        able = np.flatnonzero(capacity >= self.workers).tolist()
        if len(able) > 1:
            loss = self._loss(level, capacity=capacity, workers=self.workers)
            able = domain_loss.ranked(loss, capacity=capacity, able=able)
        return able[:_TRIES]

    def _loss(self, level: str, *, capacity: Ints, workers: int, within: Bools | None = None) -> Floats:
        """What the use of each domain of a level costs the future, in GPUs, [domains].

        Only nodes `within` [n] are used; by default all.
        """
        if self._value is None:
            self._value = self._fit_cache.values(self.ask, nodes=self.nodes)
        codes = self.codes(level) if within is None else np.where(within, self.codes(level), NO_DOMAIN)
        nodes = domain_loss.on_nodes(codes, seats=self.seats, value=self._value, workers=workers, count=len(capacity))
        gpus = self.now.gpu.total_milli / 1000
        return nodes + gpus * domain_loss.of_later_gangs(capacity, workers=workers)

    # --- Workers -----------------------------------------------------------------------------------------------

    def _in_domain(self, level: str, *, domain: int, workers: int, least: int) -> list[Claim] | None:
        """Claims for so many workers in one domain, or for at least `least`; None where these do not fit after all."""
        inside = self.codes(level) == domain
        parts = self._parts(inside, workers=workers, levels=self._inner(level))
        if parts is None:
            return None
        if self._needs_trial:
            return self._tried(inside, parts=parts, least=least)
        return [claim for within, count in parts for claim in self._at_once(within, workers=count)]

    def _inner(self, level: str) -> list[str]:
        """The levels by which the workers of one domain of `level` are divided, from wide to narrow."""
        topology, inner = self.topology, []
        if topology.preferred and (level == ANYWHERE or topology.is_narrower(topology.preferred, than=level)):
            inner.append(topology.preferred)
        if topology.group_size:
            group = topology.group_level
            inner = [each for each in inner if topology.is_narrower(group, than=each)]
            inner.append(group)
        return inner

    def _parts(self, inside: Bools, *, workers: int, levels: Sequence[str]) -> list[tuple[Bools, int]] | None:
        """The nodes [n] of each of the fewest domains, with their workers; None where some are left."""
        if not levels:
            return [(inside, workers)]
        level, *narrower = levels
        codes = self.codes(level)
        capacity = self.capacity(level, seats=np.where(inside, self.seats, 0))
        # Nodes without a domain of a preferred level are used last, as one.
        parts: list[tuple[Bools, int]] = []
        left = workers
        while left and capacity.any():
            domain = self._next_domain(level, capacity=capacity, workers=left, within=inside)
            count = min(left, int(capacity[domain]))
            found = self._parts(inside & (codes == domain), workers=count, levels=narrower)
            if found is None:
                return None
            parts += found
            left -= count
            capacity[domain] = 0
        if not left:
            return parts
        outside = inside & (codes == NO_DOMAIN)
        if level == self.topology.group_level or int(self.seats[outside].sum()) < left:
            return None
        # The narrower levels hold there too: a group lies in one domain of its level.
        found = self._parts(outside, workers=left, levels=narrower)
        return None if found is None else parts + found

    def _next_domain(self, level: str, *, capacity: Ints, workers: int, within: Bools) -> int:
        """The best domain that takes all workers, else the one that takes the most."""
        able = np.flatnonzero(capacity >= workers).tolist()
        if not able:
            return int(capacity.argmax())
        if len(able) == 1:
            return int(able[0])
        loss = self._loss(level, capacity=capacity, workers=workers, within=within)
        return domain_loss.ranked(loss, capacity=capacity, able=able)[0]

    @property
    def _needs_trial(self) -> bool:
        """Whether workers must be tried one by one, because a count of seats does not say where they fit."""
        ask = self.ask
        return ask.mode != "Exclusive" or bool(ask.more) or ask.policy == "Spread" or bool(self.topology.spreads)

    def _at_once(self, within: Bools, *, workers: int) -> list[Claim]:
        """Claims for workers with whole devices on nodes `within` [n] that have the seats: the best nodes first."""
        at = np.flatnonzero(within & (self.seats > 0))
        position = {self.nodes[row]: row for row in at.tolist()}
        claims: list[Claim] = []
        for node in self._fit_cache.best(self.ask, nodes=list(position), key=self._key, limit=len(position)):
            row = position[node]
            count = min(workers - len(claims), int(self.seats[row]))
            devices = [()] * count if self.ask.resource else choose_for_several(self.now.free_of(row), workers=count)
            for each in devices:
                claims.append(self.now.claim(row, key=f"{self._key}/{len(claims)}", devices=each))
            if len(claims) == workers:
                break
        return claims

    def _tried(self, inside: Bools, *, parts: Sequence[tuple[Bools, int]], least: int) -> list[Claim] | None:
        """Claims for the workers of all parts, tried on the ledger one by one; None where fewer than `least` fit."""
        claims: list[Claim] = []
        # A node that could not serve a worker even if it were empty counts for no domain.
        counted = inside & (workers_on_empty(self.now, gpu=self.now.gpu) > 0)
        spread = SpreadCounts(self.ledger, spreads=self._spreads, rows=np.where(counted, self._rows, -1))
        try:
            for within, count in parts:
                for _ in range(count):
                    at = np.flatnonzero(within & spread.allowed() & (self.seats > 0)).tolist()
                    claim = self._best(at, key=f"{self._key}/{len(claims)}")
                    if claim is None:
                        # A group that is not whole does not count.
                        whole = len(claims) // max(1, self.topology.group_size) * max(1, self.topology.group_size)
                        return claims[:whole] if whole >= least else None
                    claims.append(claim)
                    self.ledger.commit(claim)
                    spread.add(self._position[claim.node])
            return claims
        finally:
            for claim in claims:
                self.ledger.release(claim.key)

    def _best(self, at: Sequence[int], *, key: str) -> Claim | None:
        nodes = [self.nodes[row] for row in at]
        return best_claim(self.ledger, ask=self.ask, nodes=nodes, key=key, fit_cache=self._fit_cache)

    def _fewer(self) -> list[Claim] | None:
        """Claims for as many workers as one domain of the widest level takes, and at least `least`."""
        level = self.topology.required or ANYWHERE
        capacity = self.capacity(level)
        if not capacity.size:
            return None
        domain = int(capacity.argmax())
        most = min(self.workers, int(capacity[domain]))
        return self._in_domain(level, domain=domain, workers=most, least=self.least) if most >= self.least else None

    def _ordered(self, claims: Sequence[Claim]) -> list[Claim]:
        return by_place(claims, topology=self.topology, ledger=self.ledger, key=self._key)
