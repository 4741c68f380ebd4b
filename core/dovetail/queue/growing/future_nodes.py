"""The nodes that a pool may still get, as a ledger on which the jobs of one cycle are planned."""

from collections.abc import Container, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from dovetail.api.builtin import Node
from dovetail.cluster.leaving_nodes import is_leaving
from dovetail.decoding import decode
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.settings import Limits
from dovetail.engine.score.fit_cache import FitCache
from dovetail.pods.node_affinity import admits
from dovetail.queue.growing.pools import MOST_NODES, GrowingPool
from dovetail.queue.model.candidates import Candidate, Room, find_room


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

    def plan(self, job: Candidate, *, workers: int) -> int | None:
        """Plan this many workers of the job on new nodes; the number of these nodes, None if they do not fit.

        The workers keep their room for the rest of the cycle.
        """
        shape = (job.shape, workers)
        if not self.admits(job) or shape in self._refused:
            return None
        self._open(len(self._used) + workers)
        found = _find(job, workers=workers, ledger=self._ledger, fit_cache=self._fit_cache)
        if found is None:
            # Room only shrinks within a cycle.
            self._refused.add(shape)
            return None
        self._ledger.commit_all(found.claims)
        nodes = {claim.node for claim in found.claims}
        self._used |= nodes
        return len(nodes)

    def could_hold(self, job: Candidate) -> bool:
        """Whether all workers of the job fit on the pool alone once it has all its nodes and nothing runs there."""
        if not self.admits(job):
            return False
        if job.shape not in self._possible:
            count = min(self.pool.max_nodes, job.workers, MOST_NODES)
            empty = FutureNodes(self.pool, room=count, limits=self._limits)
            self._possible[job.shape] = empty.plan(job, workers=job.workers) is not None
        return self._possible[job.shape]

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
