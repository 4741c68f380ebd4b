"""The nodes that a pool may still get, as a ledger on which the jobs of one cycle are planned."""

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dovetail.api.builtin import Node
from dovetail.cluster.availability import is_leaving
from dovetail.decoding import decode
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.gang.shortage import workers_on_empty
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.settings import Limits
from dovetail.engine.score.fit_cache import FitCache
from dovetail.pods.node_affinity import admits
from dovetail.queue.growing.pools import MOST_NODES, GrowingPool
from dovetail.queue.model.candidates import Candidate, NoRoom, Room, Sites, find_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan of a job: `nodes` new nodes for `workers` of its workers, and its `claims` on existing nodes."""

    nodes: int
    workers: int
    claims: tuple[Claim, ...] = ()


class FutureNodes:
    """The nodes of a pool that do not exist yet, at most `room` of them.

    A cycle's plans on them share this ledger, so that two jobs are not promised the same new node. Nodes enter the
    ledger when a plan needs them.
    """

    def __init__(self, pool: GrowingPool, *, room: int, limits: Limits) -> None:
        self.pool = pool
        self._room = min(MOST_NODES, max(0, room))
        self._limits = limits
        self._ledger = Ledger(limits=limits)
        self._fit_cache = FitCache(self._ledger)
        self._template = pool.template()
        self._used: set[str] = set()
        self._admitted: dict[str, bool] = {}
        self._refused: set[object] = set()
        self._possible: dict[object, bool] = {}

    def plan(self, job: Candidate, *, existing: Sequence[Claim] = ()) -> Planned | None:
        """Plan the workers of the job that have no claim on `existing` nodes on new ones; None if they do not fit.

        The workers keep their room for the rest of the cycle.
        """
        workers = job.workers - len(existing)
        shape = (job.shape, workers)
        if not self.admits(job) or shape in self._refused:
            return None
        self._open(len(self._used) + workers)
        found = _find(job, workers=workers, ledger=self._ledger, fit_cache=self._fit_cache)
        if found is None:
            # Room only shrinks within a cycle.
            self._refused.add(shape)
            return None
        return self._taken(found.claims, existing=existing)

    def plan_jointly(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> Planned | None:
        """Plan a gang with rules of topology on the nodes of `ledger` and on as few new ones as its rules allow.

        Where one worker may be depends on the others, so existing and new nodes are one ledger here. None if the gang
        does not fit. The workers on new nodes keep their room for the rest of the cycle; `ledger` stays unchanged.
        """
        shape = (job.shape, None)
        asks = self._asks(job)
        if not asks or not self.admits(job) or shape in self._refused:
            return None
        self._open(len(self._used) + job.workers)
        joint, new = ledger.copy(), sorted(self._ledger.nodes(), key=lambda name: name not in self._used)
        for name in new:
            joint.set_node(self.pool.facts(name))
            joint.set_devices(name, devices=self.pool.devices(name))
        joint.commit_all(self._ledger.claims())
        old, fit_cache = sites[job.site] if job.site in sites else ledger.nodes(), FitCache(joint)
        way = replace(job, ask=asks[0], others=tuple(asks[1:]))

        def room(count: int) -> Room | NoRoom:
            nodes = [*old, *new[: len(self._used) + count]]
            return find_room(way, ledger=joint, fit_cache=fit_cache, sites={job.site: nodes})

        most = len(new) - len(self._used)
        if isinstance(room(most), NoRoom):
            self._refused.add(shape)
            return None
        fewest = bisect_left(range(most), True, key=lambda count: isinstance(room(count), Room))
        found = room(fewest)
        assert isinstance(found, Room), "more nodes have no less room"
        on_new = [claim for claim in found.claims if claim.node in set(new)]
        return self._taken(on_new, existing=[claim for claim in found.claims if claim not in on_new])

    def _taken(self, claims: Sequence[Claim], *, existing: Sequence[Claim]) -> Planned:
        """Keep the room of these claims on new nodes."""
        self._ledger.commit_all(claims)
        nodes = {claim.node for claim in claims}
        self._used |= nodes
        return Planned(nodes=len(nodes), workers=len(claims), claims=tuple(existing))

    def could_hold(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> bool:
        """Whether the job fits once the pool has all its nodes, and nothing runs there or on the nodes of `ledger`."""
        if not self.admits(job):
            return False
        if job.shape not in self._possible:
            count = min(self.pool.max_nodes, job.workers, MOST_NODES)
            alone = FutureNodes(self.pool, room=count, limits=self._limits)
            self._possible[job.shape] = alone.plan(job) is not None or self._could_complete(
                job, ledger=ledger, sites=sites
            )
        return self._possible[job.shape]

    def _could_complete(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> bool:
        """Whether the job fits on empty existing nodes and the nodes that are missing."""
        if self._room == 0:
            return False
        missing = FutureNodes(self.pool, room=self._room, limits=self._limits)
        missing._open(1)
        nodes = sites[job.site] if job.site in sites else ledger.nodes()
        asks = self._asks(job)
        on_existing = max((_most_workers(ledger, ask=ask, nodes=nodes) for ask in asks), default=0)
        on_one = max(
            (_most_workers(missing._ledger, ask=ask, nodes=missing._ledger.nodes()) for ask in asks), default=0
        )
        # Most jobs are too large by far, and a large ledger is expensive to empty.
        if on_existing + self._room * on_one < job.workers:
            return False
        return missing.plan_jointly(job, ledger=ledger.copy(with_claims=False), sites=sites) is not None

    def _asks(self, job: Candidate) -> list[Ask]:
        """The job's requests that nodes of the pool serve."""
        return [ask for ask in (job.ask, *job.others) if ask.resource == self.pool.resource]

    def admits(self, job: Candidate) -> bool:
        """Whether selectors, affinity and tolerations of the job allow nodes of the pool."""
        if job.site not in self._admitted:
            self._admitted[job.site] = admits(self._template, pod_spec=decode(job.site or "{}", as_type=dict[str, Any]))
        return self._admitted[job.site]

    def _open(self, count: int) -> None:
        """Let the ledger have so many nodes, as far as the pool allows."""
        for number in range(self._ledger.size, min(count, self._room)):
            # No node has such a name: it is not a DNS name.
            name = f"{self.pool.name}/{number}"
            self._ledger.set_node(self.pool.facts(name))
            self._ledger.set_devices(name, devices=self.pool.devices(name))


def _find(job: Candidate, *, workers: int, ledger: Ledger, fit_cache: FitCache) -> Room | None:
    """Room for the workers on as few nodes as best fit finds, whatever the job's own policy."""
    ways = [replace(ask, policy="Pack") for ask in (job.ask, *job.others)]
    # Its own nodes are not among these, so the site is one without an entry.
    packed = replace(job, ask=ways[0], others=tuple(ways[1:]), workers=workers, least=None, site="")
    found = find_room(packed, ledger=ledger, fit_cache=fit_cache, sites={})
    return found if isinstance(found, Room) else None


def _most_workers(ledger: Ledger, *, ask: Ask, nodes: Sequence[str]) -> int:
    """At most how many workers the nodes could run if they were empty."""
    judged = Judgement(ledger, ask=ask.alone, nodes=nodes, key="")
    return int(workers_on_empty(judged, gpu=judged.gpu).sum())


def missing_nodes(pool: GrowingPool, *, nodes: Iterable[Node], usable: Container[str], since: datetime) -> int:
    """How many nodes the pool may still get.

    A node that was created after `since` and takes no pods yet counts as a future one: it is not among the `usable`
    ones, which are ready and report devices, or it has a taint that ends with its start. An older node in such a state
    is one that is there.
    """
    return pool.max_nodes - sum(
        pool.has(node) and not _is_starting(node, pool=pool, usable=usable, since=since) for node in nodes
    )


def _is_starting(node: Node, *, pool: GrowingPool, usable: Container[str], since: datetime) -> bool:
    if not pool.came_since(node, time=since) or is_leaving(node):
        return False
    others = [taint for taint in node.spec.taints if taint.effect != "PreferNoSchedule" and taint not in pool.taints]
    return node.metadata.name not in usable or bool(others)
