"""The scheduling loop: one cycle after another over waiting jobs, and estimates in parallel.

Verdicts, overtaken plans and preemption notices go into the state. Jobs for which one of them has changed become dirty.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.gpujob import QueuePlace, Reason
from dovetail.api.meta import key_of
from dovetail.kube.retry import BACKOFF
from dovetail.kube.retry_log import log_failure
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.plan_doubts import Doubts, rest_after
from dovetail_operator.metrics import Counters
from dovetail_operator.queue.cycle import (
    BASIS_OF_WAY,
    RENEWAL_SECONDS,
    RENEWED_JOBS,
    Cycle,
    Teller,
    decide,
    estimates,
    survey,
)
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.preemption_candidates import notices_of
from dovetail_operator.state.state import State
from dovetail_operator.writes.job_numbers import Numbers

_SETTLING_SECONDS: Final = 0.05
# The same if no job waits: plans are still checked against the free room, but no start is delayed by that.
_UNHURRIED_SECONDS: Final = 2.0
# The share of time that cycles may take, so that constant changes leave room for other work: after a change to a job,
# which its user waits for; after a change to the free room only; and if no job waits.
_CYCLE_SHARE: Final = 0.2
_CYCLE_SHARE_OF_ROOM: Final = 0.1
_CYCLE_SHARE_UNHURRIED: Final = 0.04
_SLICE_SECONDS: Final = 0.02
# The same for estimates, which delay no start.
_FORESIGHT_SHARE: Final = 0.05
_FORESIGHT_SECONDS: Final = 1.0
# How long until doubtful plans are checked again without a change.
_DOUBT_SECONDS: Final = 1.0
# How long until preemption is checked again without a change.
_EVICTION_SECONDS: Final = 5.0
# Reasons whose messages quote a GPUQuota.
_OF_LIMITS: Final[frozenset[Reason]] = frozenset({"Quota", "Reserved"})


class Breath:
    """Yields to other tasks during long work, and optionally rests in between.

    `busy_seconds` is the CPU time of the work alone. Wall-clock time would include the other tasks.
    """

    def __init__(self, *, rest_seconds: float = 0.0) -> None:
        self._rest_seconds = rest_seconds
        self._due = time.monotonic() + _SLICE_SECONDS
        self._since = time.thread_time()
        self._before = 0.0

    @property
    def busy_seconds(self) -> float:
        """The CPU time of the work so far, in seconds."""
        return self._before + time.thread_time() - self._since

    async def take(self) -> None:
        """Pause if a pause is due."""
        if time.monotonic() >= self._due:
            self._before = self.busy_seconds
            await asyncio.sleep(self._rest_seconds)
            self._due, self._since = time.monotonic() + _SLICE_SECONDS, time.thread_time()


def seconds_until_next_foresight(breath: Breath) -> float:
    """How long to leave the time to other work after estimates that took this much.

    The CPU time counts and not the wall-clock time. Otherwise a busy or paused machine would delay the next estimates
    by twenty times the pause.
    """
    return max(_FORESIGHT_SECONDS, breath.busy_seconds / _FORESIGHT_SHARE)


class Queueing:
    """Runs cycles while `run` goes on.

    `dirty` marks a job as changed by its key, `let_go` one that may start.
    """

    def __init__(
        self,
        state: State,
        *,
        numbers: Numbers,
        counters: Counters,
        dirty: Callable[[str], None],
        let_go: Callable[[str], None],
        now: Callable[[], datetime],
        rng: random.Random,
    ) -> None:
        self._state = state
        self._numbers = numbers
        self._counters = counters
        self._dirty = dirty
        self._let_go = let_go
        self._now = now
        self._rng = rng
        self._caches = caches_for(state)
        self._teller = Teller()
        self._doubts = Doubts()
        self._unsettled = asyncio.Event()
        self._urgent = asyncio.Event()
        self._renewal: asyncio.TimerHandle | None = None
        self._foreseen: dict[str, QueuePlace] = {}
        self._looked = asyncio.Event()
        self._other_limits = False
        # How often the limits have changed, and that count at the last estimates.
        self._limits = self._foreseen_under = 0
        self._somebody_waits = True

    def limits_changed(self) -> None:
        """Run a cycle after the limits have changed, and renew all messages that quote them."""
        self._other_limits = True
        self._limits += 1
        # A job must not get a new reason together with an estimate from the old limits.
        self._foreseen = {}
        self.look_again()

    def look_again(self) -> None:
        """Run a cycle soon, because an input of the queue has changed."""
        self._unsettled.set()
        self._urgent.set()

    def room_changed(self) -> None:
        """Run a cycle after room was taken or released: soon if a job waits, else later."""
        if self._somebody_waits:
            self._unsettled.set()
        else:
            self._renew_later(_UNHURRIED_SECONDS)

    async def run(self) -> None:
        """Run until cancelled."""
        self._unsettled.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._admit_always())
            tasks.create_task(self._foresee_always())

    async def _admit_always(self) -> None:
        failures = 0
        while True:
            await self._unsettled.wait()
            await asyncio.sleep(_SETTLING_SECONDS)
            self._unsettled.clear()
            self._urgent.clear()
            started, busy = time.monotonic(), 0.0
            try:
                await self._number()
                busy = await self._admit()
                self._looked.set()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the queue must go on
                wait = BACKOFF.seconds(failures, rng=self._rng)
                failures += 1
                log_failure("queue is tried again", error, wait)
                self._unsettled.set()
                await asyncio.sleep(wait)
            self._counters.cycle_seconds.observe(time.monotonic() - started)
            await self._rest(busy)

    async def _rest(self, busy_seconds: float) -> None:
        """Leave time to other work after a cycle that took this much."""
        await asyncio.sleep(busy_seconds * (1 / _CYCLE_SHARE - 1))
        share = _CYCLE_SHARE_OF_ROOM if self._somebody_waits else _CYCLE_SHARE_UNHURRIED
        with suppress(TimeoutError):
            async with asyncio.timeout(busy_seconds * (1 / share - 1 / _CYCLE_SHARE)):
                await self._urgent.wait()

    async def _number(self) -> None:
        """Give every new job its number, with one write for all."""
        new = self._state.unnumbered()
        if not new:
            return
        given = await self._numbers.give(new, shown=self._state.store.jobs.values())
        for job in new:
            key, uid = key_of(job.metadata), job.metadata.uid
            known = self._state.store.jobs.get(key)
            # The job may have been deleted meanwhile.
            if known is not None and known.metadata.uid == uid:
                self._state.decisions.set_number(uid, number=given[uid])
                self._dirty(key)

    async def _admit(self) -> float:
        """Run one cycle. Jobs with a new verdict become dirty. Returns the CPU time in seconds."""
        breath = Breath()
        self._state.decisions.expire_refusals(now=self._now())
        cycle = survey(self._state, now=self._now(), caches=self._caches)
        for key in cycle.failed:
            self._dirty(key)
        self._state.decisions.set_running_jobs(cycle.at_work)
        self._state.decisions.keep_verdicts(cycle.keys)
        self._teller.forget_all_but(set(cycle.keys))
        self._foreseen = {uid: place for uid, place in self._foreseen.items() if uid in cycle.keys}
        self._somebody_waits = bool(cycle.waiting)
        told_anew, self._other_limits = _OF_LIMITS if self._other_limits else frozenset(), False
        told = self._state.decisions.verdicts
        for rank, verdict in enumerate(decide(self._state, cycle, foreseen=self._foreseen, told=told, anew=told_anew)):
            before = told.get(verdict.key)
            if verdict is not before and verdict != before:
                at_once = isinstance(verdict, Waits) and verdict.reason in told_anew
                self._take_over(verdict, before, rank=rank, key=cycle.keys[verdict.key], at_once=at_once)
            await breath.take()
        self._doubt(cycle)
        self._make_way(cycle)
        return breath.busy_seconds

    def _make_way(self, cycle: Cycle) -> None:
        """Announce the preemptions that are due, and withdraw those that no longer are."""
        before, now = self._state.decisions.notices, notices_of(cycle.orders, state=self._state)
        self._state.decisions.set_notices(now)
        for key, job in self._state.store.jobs.items() if before or now else ():
            if before.get(job.metadata.uid) != now.get(job.metadata.uid):
                self._dirty(key)
        if self._state.preemption.gap and cycle.waiting:
            # Jobs become old enough to be preempted by time alone.
            self._renew_later(_EVICTION_SECONDS)

    def still_makes_way(self, seen: Observed) -> bool:
        """Whether a cycle right now still starts the job for which this one is about to end."""
        cycle = survey(self._state, now=self._now(), caches=self._caches)
        for _ in decide(self._state, cycle):
            pass
        order = cycle.orders.get(seen.job.metadata.uid)
        return order is not None and seen.notice is not None and order.by.key == seen.notice.by

    def _doubt(self, cycle: Cycle) -> None:
        """Find the overtaken plans. Their jobs become dirty."""
        overtaken = self._doubts.overtaken(cycle.doubts, now=time.monotonic())
        news = overtaken.keys() - self._state.decisions.overtaken.keys()
        self._state.decisions.set_overtaken(overtaken)
        for uid in news & cycle.planned.keys():
            key = cycle.planned[uid]
            job, rest = self._state.store.jobs.get(key), rest_after(cycle.doubts[uid], now=self._now())
            # The job may have been deleted since the cycle began.
            if rest is not None and job is not None and job.metadata.uid == uid:
                self._state.decisions.refuse(job, obstacle=rest)
            self._dirty(key)
        for uid in overtaken.keys() & cycle.keys.keys():
            # Admitted, but without a batch Job yet: the job waits again.
            self._state.decisions.withdraw_verdict(uid)
            self.look_again()
        if cycle.doubts:
            self._renew_later(_DOUBT_SECONDS)

    def _take_over(
        self, verdict: Verdict, before: Verdict | None, *, rank: int, key: str, at_once: bool = False
    ) -> None:
        """Give the job a new verdict, now or after a pause."""
        now = time.monotonic()
        if at_once or not self._teller.hold_back(verdict, before, rank=rank, now=now):
            self._state.decisions.set_verdict(verdict.key, verdict=verdict)
            (self._let_go if isinstance(verdict, Admitted) else self._dirty)(key)
        elif rank < RENEWED_JOBS:
            self._renew_later(self._teller.renewed_in(verdict.key, now=now))

    # --- what those who wait may expect ------------------------------------------------------------------------

    async def _foresee_always(self) -> None:
        """Estimate starts in parallel to the queue, in a limited share of time."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            breath = Breath(rest_seconds=_SLICE_SECONDS)
            try:
                await self._foresee(breath)
            except Exception as error:  # noqa: BLE001 - estimates may be late, the queue must go on
                log_failure("starts are foreseen again", error, _FORESIGHT_SECONDS)
                self._looked.set()
            await asyncio.sleep(seconds_until_next_foresight(breath))

    async def _foresee(self, breath: Breath) -> None:
        """Estimate when waiting jobs start. Jobs with a new estimate become dirty."""
        if not self._somebody_waits:
            return
        cycle = survey(self._state, now=self._now(), foresees=True, caches=self._caches)
        if not cycle.waiting:
            return
        foreseen: dict[str, QueuePlace] = {}
        limits = self._limits
        for estimate in estimates(self._state, cycle):
            foreseen.update([estimate] if estimate else ())
            await breath.take()
        if limits != self._limits:
            # The estimates began under other limits.
            self._looked.set()
            return
        if limits != self._foreseen_under:
            self._take_back(foreseen, cycle=cycle)
        self._foreseen, self._foreseen_under = foreseen, limits
        for uid, place in foreseen.items():
            told = self._state.decisions.verdicts.get(uid)
            if isinstance(told, Waits) and told.queue is not None and told.queue.basis != BASIS_OF_WAY:
                position, reserved = told.queue.position, told.queue.reserved
                queue = msgspec.structs.replace(place, position=position, reserved=reserved)
                news = msgspec.structs.replace(told, queue=queue)
                if news != told:
                    self._take_over(news, told, rank=position - 1, key=cycle.keys[uid])
        # Estimates change with time alone.
        self._renew_later(RENEWAL_SECONDS)

    def _take_back(self, foreseen: Mapping[str, QueuePlace], *, cycle: Cycle) -> None:
        """Withdraw estimates at once from jobs that are no longer expected to start."""
        for uid, key in cycle.keys.items():
            told = self._state.decisions.verdicts.get(uid)
            if uid in foreseen or not isinstance(told, Waits) or told.queue is None:
                continue
            if told.queue.estimated_start is not None and told.queue.basis != BASIS_OF_WAY:
                queue = QueuePlace(position=told.queue.position, reserved=told.queue.reserved)
                self._state.decisions.set_verdict(uid, verdict=msgspec.structs.replace(told, queue=queue))
                self._dirty(key)

    def _renew_later(self, seconds: float) -> None:
        """Run a cycle within `seconds`. One timer serves all that is held back."""
        loop = asyncio.get_running_loop()
        if self._renewal is not None:
            if self._renewal.when() <= loop.time() + seconds:
                return
            self._renewal.cancel()
        self._renewal = loop.call_later(seconds, self._renew)

    def _renew(self) -> None:
        self._renewal = None
        self._unsettled.set()
