"""Give-back: what a reserve lacks comes back by the end of jobs that would not leave in time. Pure.

A reserve is ready where its GPUs are free, or in use by jobs that leave in time. For what is not, jobs end as they do
for a job of the quota that waits: only those that borrow, the least lost work first, and only if it is proven that the
GPUs are ready without them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dovetail.api.reasons.end import LEAVES_RESERVE
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.backfill.advance_reservation import Window, Windows
from dovetail.queue.backfill.reservation import Lending, Reservation
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, find_room
from dovetail.queue.preemption.policy import Evictor
from dovetail.queue.preemption.reclaim import Reclaim
from dovetail.queue.preemption.victims import Residual, Running
from dovetail.queue.quota_tree.loans import Charge, Loans


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """What reserves need at the end of a cycle, once all waiting jobs have their verdict.

    - `reclaim`, `evictor`, `loans`: those of the cycle, with all that has started
    - `ledger`: the ledger of the cycle
    - `sites`: the nodes of its jobs
    - `windows`: its advance reservations and reserves
    - `kept`: the reservations for its waiting jobs
    - `leaving`: the ends of all claims
    """

    reclaim: Reclaim
    evictor: Evictor
    loans: Loans
    ledger: Ledger
    sites: Sites
    windows: Windows
    kept: Sequence[Reservation]
    leaving: Collection[Leaving]

    def run(self) -> None:
        """Order the end of jobs for all reserves."""
        reserves = [window for window in self.windows.wanted if window.lending is not None]
        for window in reserves:
            self._for(window)
        for window in reserves:
            # Nothing else of the cycle knows a reserve as a job.
            self.loans.forget(window.key)

    def _for(self, window: Window) -> None:
        at, lending = self.loans.tree.by_name[window.quota], window.lending
        # Jobs of the quota that have started since use a part of it.
        parts = min(window.gpus, self.loans.reserved_gpus(at)) // window.gpus_each
        if not parts or lending is None:
            return
        with self._without_lent(at, within_seconds=lending.within_seconds):
            sites = self.sites if window.nodes is None else {**self.sites, window.key: window.nodes}
            asks = [window.request(resource=each) for each in window.resources]
            site = window.key if window.nodes is not None else ""
            job = Candidate(
                key=window.key, name=f"GPUQuota {window.quota}", ask=asks[0], others=tuple(asks[1:]), site=site
            )
            residual = Residual(kept=lambda _: self._kept_from(window), leaving=self.leaving)
            ready = self._most(job, parts=parts, sites=sites, residual=residual, without=())
            if ready == parts:
                return
            most = self._most(job, parts=parts, sites=sites, residual=residual, without=self._slow(at, by=window.key))
            if most > ready:
                self._end(replace(job, workers=most), window=window, at=at, sites=sites, residual=residual)

    def _end(self, job: Candidate, *, window: Window, at: int, sites: Sites, residual: Residual) -> None:
        milli = job.workers * window.gpus_each * WHOLE_MILLI
        self.loans.expect(job.key, charge=Charge(quota=at, need=self.loans.tree.need(milli)))
        seconds = 0.0 if window.lending is None else window.lending.within_seconds
        self.reclaim.reclaim(
            job,
            owner=at,
            ledger=self.ledger,
            sites=sites,
            residual=residual,
            message=LEAVES_RESERVE(quota=window.quota, gpus=window.gpus, seconds=seconds).message,
        )

    @contextmanager
    def _without_lent(self, at: int, *, within_seconds: float) -> Iterator[None]:
        """Without the jobs that leave in time and may end together, within the context."""
        going = {each.key for each in self.evictor.running if each.yields_to or each.key in self.evictor.orders}
        jobs = {each for each in self.loans.borrowers_for(at, within_seconds=within_seconds) if each not in going}
        ready_seconds = Lending(within_seconds=within_seconds).ready_seconds
        ending = {
            each.key
            for each in self.leaving
            if each.job in jobs or (each.at_seconds <= ready_seconds and not each.assumed)
        }
        for each in jobs:
            self.loans.end(each)
        try:
            with self.ledger.without(ending):
                yield
        finally:
            for each in jobs:
                self.loans.start(each)

    def _slow(self, at: int, *, by: str) -> list[Running]:
        """The other jobs that may end for the quota, each by itself, and those that end for its reserve already."""
        return [
            each
            for each in self.evictor.running
            if each.yields_to == by
            or (
                not each.yields_to
                and each.key not in self.evictor.orders
                and each.preemptible
                and self.loans.may_end_for(each.key, quota=at)
            )
        ]

    def _kept_from(self, window: Window) -> list[Reservation]:
        """What is kept for others: for waiting jobs, and by the windows of other quotas."""
        others = [each for quota, kept in self.windows.reservations.items() if quota != window.quota for each in kept]
        return [*others, *self.kept]

    def _most(self, job: Candidate, *, parts: int, sites: Sites, residual: Residual, without: Sequence[Running]) -> int:
        """How many parts of a reserve have room at most, without these jobs."""
        with self.ledger.without(key for each in without for key in each.claims):
            left = residual(self.ledger)
            low, high, fit_cache = 0, parts, FitCache(left)
            while low < high:
                middle = (low + high + 1) // 2
                found = find_room(replace(job, workers=middle), ledger=left, fit_cache=fit_cache, sites=sites)
                low, high = (middle, high) if isinstance(found, Room) else (low, middle - 1)
            return low
