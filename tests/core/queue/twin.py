"""A scheduling cycle beside its twin without caches: both say the same of each job, and give each victim one order.

At the end of a cycle it is counted again what the loans count, and that the rooms of those for whom others end are
kept beside all that has started.
"""

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.backfill.advance_reservation import is_reserve
from dovetail.queue.backfill.residual import ResidualCapacity
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Running
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.verdicts import Admitted, Verdict, Waits


class _Residual(ResidualCapacity):
    """Computes each room from the ledger as it is."""

    def room(self, job: Candidate, **options: Any) -> Room | Shortage:
        self.forget()
        return super().room(job, **options)


class _Bare(SchedulingCycle):
    """The cycle without its caches, which makes each reservation at once."""

    _postpones = False

    def __init__(self, ledger: Ledger, *, sites: Sites, **options: Any) -> None:
        super().__init__(ledger, sites=sites, **options)
        self._kept = _Residual(ledger, sites=sites)

    def at(self, job: Candidate) -> Verdict:
        self._repeats.changed()
        return super().at(job)

    def _room_for(self, job: Candidate) -> Room | Shortage:
        self._refused, self._refused_before = {}, {}
        self._fit_cache = FitCache(self._ledger)
        if (reclaim := self._reclaim) is not None:
            reclaim._settled_at, reclaim._potential_victims_at, reclaim._by_quota = -1, (-1, -1), None
            reclaim._loans._owners.clear()
        return super()._room_for(job)


class CheckedCycle(SchedulingCycle):
    """The cycle, compared job by job with its twin. Not for growing pools, whose requests outlive a cycle."""

    def __init__(self, ledger: Ledger, *, sites: Sites, leaving: Iterable[Leaving] = (), **options: Any) -> None:
        ends = list(leaving)
        self._twin = None if options.get("growth") else self._bare(ledger, sites=sites, leaving=ends, **options)
        super().__init__(ledger, sites=sites, leaving=ends, **options)
        self._verdicts: dict[str, Verdict] = {}
        # A planned worker has its room while the pods that ended for it are still going: these overlap from the start.
        self._taken_before = _taken(ledger.claims())
        # With jobs that are starting, which nobody can end yet.
        self._loans_before = None if self._gate.loans is None else self._gate.loans.copy()

    @staticmethod
    def _bare(
        ledger: Ledger, *, evictor: Evictor | None = None, gate: Any = None, shortages: Any = None, **options: Any
    ) -> SchedulingCycle:
        if evictor is not None:
            # Whose turn it is to search is no cache: both have the same.
            forgetful = NegativeCache()
            forgetful.turns = deepcopy(evictor.negative_cache.turns)
            forgetful.turns_at_limits = deepcopy(evictor.negative_cache.turns_at_limits)
            evictor = Evictor(
                running=evictor.running,
                rules=evictor.rules,
                orders=dict(evictor.orders),
                negative_cache=forgetful,
                allowed=evictor.allowed,
            )
        return _Bare(ledger.copy(), evictor=evictor, gate=deepcopy(gate), **options)

    def at(self, job: Candidate) -> Verdict:
        ordered = {victim: order.by.key for victim, order in self._evictor.orders.items()}
        verdict = super().at(job)
        for victim, by in ordered.items():
            assert self._evictor.orders[victim].by.key == by, f"{victim} ends for {by}, and then for {job.key}"
        self._verdicts[job.key] = verdict
        if self._twin is not None:
            bare = self._twin.at(job)
            said = _decided if self.now else _said
            assert said(verdict) == said(bare), f"caches of the cycle: {verdict} for {bare}"
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
            assert self._ordered(self) == self._ordered(self._twin)
        if not self.now:
            # Simulated cycles share what they count.
            self._check_rooms()
            self._check_loans()

    @staticmethod
    def _ordered(look: SchedulingCycle) -> dict[str, str]:
        """Who ends for which reserve."""
        ends = {victim: order.by.key for victim, order in look._evictor.orders.items()}
        return {victim: by for victim, by in ends.items() if is_reserve(by)}

    def _coming(self) -> dict[str, tuple[Claim, ...]]:
        """The rooms of the jobs for which others end, by their keys."""
        rooms = {}
        for order in self._evictor.orders.values():
            if is_reserve(order.by.key):
                # It has no verdict, and what is ready of it is no one's room.
                continue
            verdict = self._verdicts[order.by.key]
            assert isinstance(verdict, Waits), f"{order.victim} ends for {order.by.key}, which has room"
            assert verdict.kept is not None, f"{order.victim} ends for {order.by.key}, for which no room is kept"
            rooms[order.by.key] = verdict.kept.claims
        return rooms

    def _check_rooms(self) -> None:
        """All that stays, all that has started and all that is kept for those that come fit together."""
        ended = {key for each in self._evictor.running if self._goes(each) for key in each.claims}
        stay = [claim for claim in self._ledger.claims() if claim.key not in ended]
        taken = _taken([*stay, *(claim for room in self._coming().values() for claim in room)])
        twice = {uuid: milli for uuid, milli in taken.items() if milli > max(WHOLE_MILLI, self._taken_before[uuid])}
        assert not twice, f"promised twice: {twice}"

    def _goes(self, each: Running) -> bool:
        return each.left or each.key in self._evictor.orders

    def _check_loans(self) -> None:
        """The loans count those that stay, those that have started, and those for which others end."""
        loans = self._gate.loans
        if loans is None or self._loans_before is None:
            return
        fresh = self._loans_before.copy()
        for each in self._evictor.running:
            # A job that moves keeps its place in the limits.
            if self._goes(each) and not each.moves:
                fresh.end(each.key)
        started = {key: each.claims for key, each in self._verdicts.items() if isinstance(each, Admitted)}
        for key, claims in (started | self._coming()).items():
            if claims:
                fresh.start(key, workers=len(claims))
        assert _asked(loans) == _asked(fresh)


def _taken(claims: Iterable[Claim]) -> Counter[str]:
    """How much of each device is promised, in thousandths."""
    taken = Counter[str]()
    for device in (device for claim in claims for device in claim.devices):
        taken[device.uuid] += device.share_milli
    return taken


def _asked(loans: Loans) -> object:
    """What loans answer."""
    quotas = range(len(loans.tree.nodes))
    of_quotas = [(loans.used(at), loans.borrowed_milli(at), loans.level(at)) for at in quotas]
    return of_quotas, loans.outside, {key: (loans.owner(key), loans.firm_room(key)) for key in loans.charges}


def _said(verdict: Verdict) -> object:
    """What a verdict says. Of a shortage it may quote the numbers at the first job of the shape."""
    return _decided(verdict) if isinstance(verdict, Admitted) else (verdict.kept, _decided(verdict))


def _decided(verdict: Verdict) -> object:
    """What a verdict decides. Simulated cycles may keep room for a waiting job without a word."""
    if isinstance(verdict, Admitted):
        return replace(verdict, on_cpu="on the CPU" if verdict.on_cpu else "")
    return verdict.reason == "Quota"
