"""Which waiting jobs new nodes are requested for, in queue order. Pure.

Existing nodes come first: a job that starts now requests nothing, and a plan on new nodes takes no room of existing
ones. The one exception are nodes of the pool that came after the job's request: they are kept for its workers while the
others are awaited.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpujob import Provisioning, Reason
from dovetail.api.reasons import capacity
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.catalog import opening
from dovetail.cluster.view import ClusterView
from dovetail.engine.gang.shortage import Shortage, machine_shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.formats.durations import moment
from dovetail.queue.growing.autoscaler_answer import Answer
from dovetail.queue.growing.future_nodes import FutureNodes, Planned, missing_nodes
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.growing.requests import due_at, explained, following, is_resting
from dovetail.queue.model.candidates import Candidate, Room, Sites, find_room
from dovetail.queue.model.gate import Gate, Open
from dovetail.queue.verdicts import Admitted, Verdict, Waits, waits_because

NEVER: Final[Reason] = "ExceedsCapacity"
# Reasons that more nodes may remove. A limit (Quota) is none of them.
_MORE_NODES_HELP: Final[frozenset[Reason]] = frozenset(
    {NEVER, "Resources", "Fragmentation", "MemoryGuard", "NodeUnhealthy", "Priority", "Reserved"}
)


class Growth:
    """Requests of one scheduling cycle. Pass it every job with its verdict, in queue order.

    - `pools`: the future nodes of each pool; called when a job first needs them
    - `requests`: what was requested for the waiting jobs so far, by job key
    - `gate`: a gate of its own, with the limits as the cycle found them
    - `nodes`: the existing nodes by name
    - `answers`: the cluster autoscaler's answers to these requests, by job key
    """

    def __init__(
        self,
        rules: GrowingRules,
        *,
        pools: Callable[[], Sequence[FutureNodes]],
        requests: Mapping[str, Provisioning],
        nodes: Mapping[str, Node],
        now: datetime,
        gate: Gate | None = None,
        answers: Mapping[str, Answer] = MappingProxyType({}),
    ) -> None:
        self._rules = rules
        self._make_pools = pools
        self._pools: Sequence[FutureNodes] | None = None
        self._requests = requests
        self._nodes = nodes
        self._now = now
        self._answers = answers
        self._gate = gate or Open()
        self._fit_cache: FitCache | None = None
        self.next_seconds: float | None = None
        """In how many seconds time alone changes a verdict; None for never. Filled by the jobs."""

    def at(self, job: Candidate, *, verdict: Verdict, ledger: Ledger, sites: Sites) -> tuple[Verdict, Sequence[Claim]]:
        """The verdict with the job's request for new nodes, and what existing nodes keep for it.

        `ledger` is that of the cycle, and stays unchanged.
        """
        if isinstance(verdict, Admitted):
            self._gate.started(job if not verdict.claims else replace(job, workers=len(verdict.claims)))
            return verdict, ()
        if verdict.reason not in _MORE_NODES_HELP or job.ask.gpu is None:
            return verdict, ()
        # An elastic job starts with its smallest number of workers, and grows later.
        job = job if job.least is None else replace(job, workers=job.least, least=None)
        before = self._requests.get(job.key)
        if before is not None and is_resting(before, now=self._now):
            return self._with_message(verdict, request=before), ()
        if before is None and self._is_too_early(job, verdict=verdict):
            return verdict, ()
        return self._planned(job, verdict=verdict, before=before, ledger=ledger, sites=sites)

    def could_grow_for(self, job: Candidate) -> bool:
        """Whether the job may use the nodes of a growing pool."""
        return any(pool.admits(job) for pool in self._in_order(None))

    def _is_too_early(self, job: Candidate, *, verdict: Waits) -> bool:
        if verdict.reason == NEVER:
            return False
        left = self._rules.after_seconds - (self._now - moment(job.created)).total_seconds()
        if left > 0:
            self._wake_in(left)
        return left > 0

    def _planned(
        self, job: Candidate, *, verdict: Waits, before: Provisioning | None, ledger: Ledger, sites: Sites
    ) -> tuple[Verdict, Sequence[Claim]]:
        pools = [pool for pool in self._in_order(before) if pool.admits(job)]
        if not pools:
            return verdict, ()
        if (refused := self._gate.refusal(job)) is not None:
            return (waits_because(job, why=refused) if verdict.reason == NEVER else verdict), ()
        for pool, planned in self._plans(job, pools=pools, ledger=ledger, sites=sites):
            if planned is None:
                continue
            self._gate.started(job)
            request = following(
                before,
                pool=pool.pool.name,
                nodes=planned.nodes,
                workers=planned.workers,
                rules=self._rules,
                now=self._now,
                answer=self._answers.get(job.key),
            )
            return self._with_message(verdict, request=request), self._kept(planned.claims, pool=pool, before=before)
        return self._at_limit(job, verdict=verdict, pools=pools, ledger=ledger, sites=sites), ()

    def _plans(
        self, job: Candidate, *, pools: Iterable[FutureNodes], ledger: Ledger, sites: Sites
    ) -> Iterator[tuple[FutureNodes, Planned | None]]:
        """The job's plan with new nodes of each pool, made when it is asked for."""
        room = self._on_existing(job, ledger=ledger, sites=sites)
        # Room on existing nodes for all workers is room that a reservation keeps for another job.
        is_kept = room is not None and len(room.claims) == job.workers
        is_bound = job.ask.topology is not None and job.ask.topology.is_bound
        for pool in pools:
            if is_bound and not is_kept:
                yield pool, pool.plan_jointly(job, ledger=ledger, sites=sites)
            else:
                # A job runs on one kind of nodes.
                some = room is not None and not is_kept and room.ask.resource == pool.pool.resource
                yield pool, pool.plan(job, existing=room.claims if room is not None and some else ())

    def _in_order(self, before: Provisioning | None) -> list[FutureNodes]:
        """The pools: that of a request under way first, that of one that was given up last."""
        if self._pools is None:
            self._pools = self._make_pools()
        if before is None:
            return list(self._pools)
        is_first = before.retry_time is None
        return sorted(self._pools, key=lambda each: (each.pool.name == before.pool) != is_first)

    def _on_existing(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> Room | None:
        """Room on existing nodes for the workers, as many as fit."""
        if job.workers == 1:
            return None
        self._fit_cache = self._fit_cache or FitCache(ledger)
        found = find_room(replace(job, least=1), ledger=ledger, fit_cache=self._fit_cache, sites=sites)
        return found if isinstance(found, Room) else None

    def _kept(self, claims: Iterable[Claim], *, pool: FutureNodes, before: Provisioning | None) -> Sequence[Claim]:
        """Of these claims, those on nodes of the pool that came after the request."""
        if before is None or before.retry_time is not None:
            return ()
        since = moment(before.requested_time)
        nodes = {claim.node: self._nodes[claim.node] for claim in claims if claim.node in self._nodes}
        came = {name for name, node in nodes.items() if pool.pool.came_since(node, time=since)}
        return [claim for claim in claims if claim.node in came]

    def _at_limit(
        self, job: Candidate, *, verdict: Waits, pools: Iterable[FutureNodes], ledger: Ledger, sites: Sites
    ) -> Waits:
        """The verdict where no pool has room left now."""
        if verdict.reason != NEVER:
            return verdict
        full = next((each.pool for each in pools if each.could_hold(job, ledger=ledger, sites=sites)), None)
        if full is None:
            return verdict
        return waits_because(job, why=opening(verdict.details) + says.POOL_FULL(pool=full.name, most=full.max_nodes))

    def _with_message(self, verdict: Waits, *, request: Provisioning) -> Waits:
        self._wake_in((due_at(request, rules=self._rules) - self._now).total_seconds())
        why = explained(request, rules=self._rules)
        return msgspec.structs.replace(
            verdict, reason=why.wait_reason, message=why.message, details=why.clauses, provisioning=request
        )

    def _wake_in(self, seconds: float) -> None:
        self.next_seconds = seconds if self.next_seconds is None else min(seconds, self.next_seconds)


def room_without_gpus(job: Candidate, *, ledger: Ledger, sites: Sites, growth: Growth | None) -> Room | Shortage:
    """Room for workers without GPUs, or why they could never run.

    One's own machine may be too small for them. In a cluster, the pools to which the job is kept may have no node that
    it may use, and none of them grows. Kube-scheduler looks for all else, because any other node may come at any time.
    """
    too_large = machine_shortage(ledger, ask=job.ask, workers=job.least or job.workers)
    if too_large is not None:
        return too_large
    has_node = names.LABEL_POOL not in job.site or sites.get(job.site, ledger.nodes())
    if has_node or (growth is not None and growth.could_grow_for(job)):
        return Room(ask=job.ask, claims=())
    return Shortage.of(capacity.NO_NODE_FOR_IT())


def build_growth(
    rules: GrowingRules,
    *,
    view: ClusterView,
    requests: Mapping[str, Provisioning],
    gate: Gate | None,
    now: datetime,
    answers: Mapping[str, Answer] = MappingProxyType({}),
) -> Growth | None:
    """The requests of a cycle over the nodes of `view`; None without growing pools."""
    if not rules.pools:
        return None

    def pools() -> list[FutureNodes]:
        nodes, ledger = view.nodes.values(), view.ledger
        usable = {name for name in view.nodes if ledger.devices(name) and not ledger.obstacle(name)}
        since = now - timedelta(seconds=rules.give_up_seconds)
        rooms = [missing_nodes(pool, nodes=nodes, usable=usable, since=since) for pool in rules.pools]
        return [
            FutureNodes(pool, room=room, limits=ledger.limits) for pool, room in zip(rules.pools, rooms, strict=True)
        ]

    return Growth(rules, pools=pools, requests=requests, nodes=view.nodes, now=now, gate=gate, answers=answers)
