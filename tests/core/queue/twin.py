"""A scheduling cycle beside its twin without caches: both say the same of each job, and give each victim one order."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.residual import ResidualCapacity
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor
from dovetail.queue.verdicts import Admitted, Verdict


class _Residual(ResidualCapacity):
    """Computes each room from the ledger as it is."""

    def room(self, job: Candidate, **options: Any) -> Room | Shortage:
        self.forget()
        return super().room(job, **options)


class _Bare(SchedulingCycle):
    """The cycle without its caches."""

    def __init__(self, ledger: Ledger, *, sites: Sites, **options: Any) -> None:
        super().__init__(ledger, sites=sites, **options)
        self._kept = _Residual(ledger, sites=sites)

    def _room_for(self, job: Candidate) -> Room | Shortage:
        self._refused, self._refused_before = {}, {}
        self._fit_cache = FitCache(self._ledger)
        if (reclaim := self._reclaim) is not None:
            reclaim._settled_at, reclaim._willing_at, reclaim._by_quota = -1, (-1, -1), None
            reclaim._loans._owners.clear()
        return super()._room_for(job)


class CheckedCycle(SchedulingCycle):
    """The cycle, compared job by job with its twin. Not for growing pools, whose requests outlive a cycle."""

    def __init__(self, ledger: Ledger, *, sites: Sites, leaving: Iterable[Leaving] = (), **options: Any) -> None:
        ends = list(leaving)
        self._twin = None if options.get("growth") else self._bare(ledger, sites=sites, leaving=ends, **options)
        super().__init__(ledger, sites=sites, leaving=ends, **options)

    @staticmethod
    def _bare(ledger: Ledger, *, evictor: Evictor | None = None, gate: Any = None, **options: Any) -> SchedulingCycle:
        if evictor is not None:
            evictor = Evictor(running=evictor.running, rules=evictor.rules, negative_cache=NegativeCache())
        return _Bare(ledger.copy(), evictor=evictor, gate=deepcopy(gate), **options)

    def at(self, job: Candidate) -> Verdict:
        ordered = {victim: order.by.key for victim, order in self._evictor.orders.items()}
        verdict = super().at(job)
        for victim, by in ordered.items():
            assert self._evictor.orders[victim].by.key == by, f"{victim} ends for {by}, and then for {job.key}"
        if self._twin is not None:
            bare = self._twin.at(job)
            assert _said(verdict) == _said(bare), f"caches of the cycle: {verdict} for {bare}"
        return verdict

    def in_order(self, waiting: Iterable[Candidate]) -> list[Candidate]:
        jobs = list(waiting)
        ordered = super().in_order(jobs)
        if self._twin is not None:
            assert ordered == self._twin.in_order(jobs)
        return ordered

    def advance(self) -> list[tuple[Leaving, Claim]] | None:
        ended = super().advance()
        if self._twin is not None:
            assert ended == self._twin.advance()
        return ended

    def end(self) -> None:
        super().end()
        if self._twin is not None:
            self._twin.end()


def _said(verdict: Verdict) -> object:
    """What a verdict decides. Of a shortage it may quote the numbers at the first job of the shape."""
    return verdict if isinstance(verdict, Admitted) else (verdict.kept, verdict.reason == "Quota")
