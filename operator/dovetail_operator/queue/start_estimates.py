"""Estimates of when waiting jobs start, computed in parallel to the cycles in a limited share of time.

A cycle writes the latest estimates into the verdicts of the jobs that wait.
"""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from dovetail.api.gpujob import QueuePlace
from dovetail.kube.retry_log import log_failure
from dovetail.queue.estimates.monte_carlo import foresee_with_range
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.verdicts import Waits
from dovetail_operator.queue.cycle import BASIS_OF_PREEMPTION, Cycle, survey, with_those_on_the_way
from dovetail_operator.queue.cycle_caches import CycleCaches
from dovetail_operator.queue.time_slices import SLICE_SECONDS, TimeSlices
from dovetail_operator.queue.verdict_updates import RENEWAL_SECONDS, VerdictUpdates
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs

# The share of time that estimates may take, which delay no start, and the shortest time between two.
_SHARE: Final = 0.05
_PAUSE_SECONDS: Final = 1.0
# How long estimates wait for the operator to have less urgent work. After that they are made in any case.
_PATIENCE_SECONDS: Final = 10.0
# The same in a rush: many jobs end for another one, or many workers start. What is estimated then is soon outdated, and
# it would take two fifths of the operator's time while it writes the statuses of those that end.
_RUSH_PATIENCE_SECONDS: Final = 60.0


class StartEstimates:
    """Estimates starts after cycles, as long as `run` runs.

    `places` has the latest estimates, by UID. `is_busy` says whether the operator has more urgent work.
    """

    def __init__(
        self,
        state: State,
        *,
        caches: CycleCaches,
        updates: VerdictUpdates,
        wake_up: WakeUp,
        now: Callable[[], datetime],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.places: dict[str, QueuePlace] = {}
        self._state = state
        self._caches = caches
        self._updates = updates
        self._wake_up = wake_up
        self._now = now
        self._is_busy = is_busy
        self._due = asyncio.Event()
        # How often the limits have changed, and that count at the last estimates.
        self._limits = self._limits_before = 0

    def request(self) -> None:
        """Estimate again: a cycle has ended with waiting jobs."""
        self._due.set()

    def keep(self, uids: Container[str]) -> None:
        """Drop the estimates of all other jobs, which no longer wait."""
        self.places = {uid: place for uid, place in self.places.items() if uid in uids}

    def limits_changed(self) -> None:
        """Drop all estimates: a job must not get a new reason together with an estimate from the old limits."""
        self._limits += 1
        self.places = {}

    async def run(self) -> None:
        """Estimate until cancelled."""
        while True:
            await self._due.wait()
            await self._until_calm()
            self._due.clear()
            slices = TimeSlices(rest_seconds=SLICE_SECONDS)
            try:
                await self._estimate(slices)
            except Exception as error:  # noqa: BLE001 - estimates may be late, the queue must go on
                log_failure("starts are foreseen again", error=error, wait=_PAUSE_SECONDS)
                self._due.set()
            pause = seconds_until_next(slices)
            self._updates.pause_estimates(seconds=pause)
            await asyncio.sleep(pause)

    async def _until_calm(self) -> None:
        """Leave a rush of submissions, admissions and preemptions to the writes of statuses, for some time."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + self._patience_seconds() - loop.time()) > 0:
            self._updates.pause_estimates(seconds=left)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _patience_seconds(self) -> float:
        """How long estimates wait for more urgent work in all; 0 without such work."""
        if self._state.decisions.is_rush:
            return _RUSH_PATIENCE_SECONDS
        return _PATIENCE_SECONDS if self._is_busy() else 0.0

    async def _estimate(self, slices: TimeSlices) -> None:
        """Estimate when waiting jobs start, and update their verdicts."""
        cycle = survey(self._state, now=self._now(), foresees=True, caches=self._caches)
        if not cycle.waiting:
            return
        places: dict[str, QueuePlace] = {}
        limits = self._limits
        for estimate in estimates(self._state, cycle=cycle):
            places.update([estimate] if estimate else ())
            await slices.pause_if_due()
        if limits != self._limits:
            # The estimates began under other limits.
            self._due.set()
            return
        if limits != self._limits_before:
            self._withdraw(places, cycle=cycle)
        self.places, self._limits_before = places, limits
        self._update_verdicts(cycle)
        # Estimates change with time alone.
        self._wake_up.within(seconds=RENEWAL_SECONDS)

    def _update_verdicts(self, cycle: Cycle) -> None:
        """Put new estimates into the verdicts of waiting jobs. Their positions stay.

        First reasons wait for this: those of jobs without an estimate are written too.
        """
        for uid, place in self.places.items():
            known, before = self._updates.latest(uid), self._state.decisions.verdicts.get(uid)
            if (
                isinstance(known, Waits)
                and known.queue is not None
                and known.queue.basis != BASIS_OF_PREEMPTION.message
            ):
                position, reserved = known.queue.position, known.queue.reserved
                queue = msgspec.structs.replace(place, position=position, reserved=reserved)
                news = msgspec.structs.replace(known, queue=queue)
                if news != known:
                    self._updates.update(news, before=before, rank=position - 1, key=cycle.keys[uid])
        self._updates.estimated(cycle.keys)

    def _withdraw(self, places: Mapping[str, QueuePlace], *, cycle: Cycle) -> None:
        """Withdraw estimates at once from jobs that are no longer expected to start."""
        for uid, key in cycle.keys.items():
            known = self._state.decisions.verdicts.get(uid)
            if uid in places or not isinstance(known, Waits) or known.queue is None:
                continue
            if known.queue.estimated_start is not None and known.queue.basis != BASIS_OF_PREEMPTION.message:
                queue = QueuePlace(position=known.queue.position, reserved=known.queue.reserved)
                news, rank = msgspec.structs.replace(known, queue=queue), queue.position - 1
                self._updates.update(news, before=known, rank=rank, key=key, at_once=True)


def seconds_until_next(slices: TimeSlices) -> float:
    """How long to leave the time to other work after estimates that took this much.

    The CPU time counts and not the wall-clock time. Otherwise a busy or paused machine would delay the next estimates
    by twenty times the pause.
    """
    return max(_PAUSE_SECONDS, slices.busy_seconds / _SHARE)


def estimates(state: State, *, cycle: Cycle) -> Iterator[tuple[str, QueuePlace] | None]:
    """Yield when the first waiting jobs are likely to start, by UID.

    `decide` sets their positions.

    Yields None from time to time, so that the caller can pause the work.
    """
    ledger, leaving = with_those_on_the_way(state, cycle=cycle)
    counted, children = counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage), children_of_jobs(state)
    capacity = state.store.quotas.capacity(state.store.view.ledger)
    gate = partial(state.store.quotas.gate, counted, children=children, capacity=capacity)
    yield from _note_arrivals(state, cycle=cycle)
    coming = state.store.expectations.coming(now=cycle.now)
    windows = windows_of(
        state.store.quotas,
        counted=counted,
        view=state.store.view,
        ledger=ledger,
        leaving=leaving,
        now=cycle.now,
        gate=gate() if state.store.quotas.reserve else None,
    )
    for start in foresee_with_range(
        cycle.waiting, ledger=ledger, sites=cycle.sites, leaving=leaving, gate=gate, coming=coming, windows=windows
    ):
        # A long simulation runs in parts, and the job may have been deleted in between.
        if start is None or not _is_there(state, cycle=cycle, uid=start.key):
            yield None
        else:
            yield start.key, state.store.expectations.place(start, now=cycle.now)


def _is_there(state: State, *, cycle: Cycle, uid: str) -> bool:
    job = state.store.jobs.get(cycle.keys[uid])
    return job is not None and job.metadata.uid == uid


def _note_arrivals(state: State, *, cycle: Cycle) -> Iterator[None]:
    """Learn from new jobs, the oldest first."""
    for job in state.store.expectations.new(state.store.jobs.values()):
        state.store.expectations.came(
            job,
            candidate=cycle.caches.candidates.candidate(job, state=state, workers=job.spec.workers, sites=cycle.sites),
        )
        yield None
