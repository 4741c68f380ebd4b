"""The queue at work: one look after the other at the jobs that wait, and beside it what they may expect.

Verdicts, plans that are overtaken and notices to make way are put into the state; the jobs of which that is news are
marked dirty.
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
from dovetail_operator.job.plan import Doubts, rest_after
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
# The same where nobody waits: plans are still checked against the room that there is, but nobody is held up by that.
_UNHURRIED_SECONDS: Final = 2.0
# Cycles may take this part of the time, so that changes that come without end leave room for the rest: the first
# where a job has changed, of which people wait to hear, the second where only room has, the third where nobody waits.
_CYCLE_SHARE: Final = 0.2
_CYCLE_SHARE_OF_ROOM: Final = 0.1
_CYCLE_SHARE_UNHURRIED: Final = 0.04
_SLICE_SECONDS: Final = 0.02
# The same for what waiting jobs may expect, for which nobody waits as they wait for room.
_FORESIGHT_SHARE: Final = 0.05
_FORESIGHT_SECONDS: Final = 1.0
# How long until plans that do not seem to hold are looked at again, without any change.
_DOUBT_SECONDS: Final = 1.0
# How long until it is looked again who may make way, without any change.
_EVICTION_SECONDS: Final = 5.0
# Reasons whose sentences quote what a GPUQuota says.
_OF_LIMITS: Final[frozenset[Reason]] = frozenset({"Quota", "Reserved"})


class Breath:
    """Lets others have their turn while a long piece of work goes on, and rests for a while where that is wished.

    `busy_seconds` is the CPU time of the work alone: how long it took by the clock tells of the others too.
    """

    def __init__(self, *, rest_seconds: float = 0.0) -> None:
        self._rest_seconds = rest_seconds
        self._due = time.monotonic() + _SLICE_SECONDS
        self._since = time.thread_time()
        self._before = 0.0

    @property
    def busy_seconds(self) -> float:
        """How much of it there was so far."""
        return self._before + time.thread_time() - self._since

    async def take(self) -> None:
        """Pause if that is due."""
        if time.monotonic() >= self._due:
            self._before = self.busy_seconds
            await asyncio.sleep(self._rest_seconds)
            self._due, self._since = time.monotonic() + _SLICE_SECONDS, time.thread_time()


def seconds_until_next_foresight(breath: Breath) -> float:
    """How long the time is left to others after a foresight that took so much work.

    However long it took by the clock: on a machine that is busy, or stood still, nobody is to wait twenty times as long
    for an estimate.
    """
    return max(_FORESIGHT_SECONDS, breath.busy_seconds / _FORESIGHT_SHARE)


class Queueing:
    """Decides again and again while `run` goes on; `dirty` marks the job with that key, `let_go` one that may start."""

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
        # Counts how often limits have changed, and what it was when starts were last foreseen.
        self._limits = self._foreseen_under = 0
        self._somebody_waits = True

    def limits_changed(self) -> None:
        """Limits are not what they were: what was told of them is told anew at once."""
        self._other_limits = True
        self._limits += 1
        # Whoever is told another reason now is not to be told a start that was foreseen under other limits.
        self._foreseen = {}
        self.look_again()

    def look_again(self) -> None:
        """Something has changed that the queue goes by."""
        self._unsettled.set()
        self._urgent.set()

    def room_changed(self) -> None:
        """Room was taken or came free: of that a look has to be taken soon where somebody waits for some."""
        if self._somebody_waits:
            self._unsettled.set()
        else:
            self._renew_later(_UNHURRIED_SECONDS)

    async def run(self) -> None:
        """Work until cancelled."""
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
        """Leave the time to others after a cycle that took so much of it."""
        await asyncio.sleep(busy_seconds * (1 / _CYCLE_SHARE - 1))
        share = _CYCLE_SHARE_OF_ROOM if self._somebody_waits else _CYCLE_SHARE_UNHURRIED
        with suppress(TimeoutError):
            async with asyncio.timeout(busy_seconds * (1 / share - 1 / _CYCLE_SHARE)):
                await self._urgent.wait()

    async def _number(self) -> None:
        """Give every new job its number, all of them with one write."""
        new = self._state.unnumbered()
        if not new:
            return
        given = await self._numbers.give(new, shown=self._state.store.jobs.values())
        for job in new:
            key, uid = key_of(job.metadata), job.metadata.uid
            known = self._state.store.jobs.get(key)
            # It may have gone meanwhile.
            if known is not None and known.metadata.uid == uid:
                self._state.decisions.set_number(uid, number=given[uid])
                self._dirty(key)

    async def _admit(self) -> float:
        """One look at all jobs that wait; those whose verdict is news get dirty. The CPU time that it took."""
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
        """Let those be told that have to make way now, and those that have not any more."""
        before, now = self._state.decisions.notices, notices_of(cycle.orders, state=self._state)
        self._state.decisions.set_notices(now)
        for key, job in self._state.store.jobs.items() if before or now else ():
            if before.get(job.metadata.uid) != now.get(job.metadata.uid):
                self._dirty(key)
        if self._state.preemption.gap and cycle.waiting:
            # Time alone makes jobs old enough to make way.
            self._renew_later(_EVICTION_SECONDS)

    def still_makes_way(self, seen: Observed) -> bool:
        """Whether the start for which the job is about to be ended is proven as things are at this moment."""
        cycle = survey(self._state, now=self._now(), caches=self._caches)
        for _ in decide(self._state, cycle):
            pass
        order = cycle.orders.get(seen.job.metadata.uid)
        return order is not None and seen.notice is not None and order.by.key == seen.notice.by

    def _doubt(self, cycle: Cycle) -> None:
        """Find the plans that are overtaken; their jobs get dirty."""
        overtaken = self._doubts.overtaken(cycle.doubts, now=time.monotonic())
        news = overtaken.keys() - self._state.decisions.overtaken.keys()
        self._state.decisions.set_overtaken(overtaken)
        for uid in news & cycle.planned.keys():
            key = cycle.planned[uid]
            job, rest = self._state.store.jobs.get(key), rest_after(cycle.doubts[uid], now=self._now())
            # It may have gone since the look began.
            if rest is not None and job is not None and job.metadata.uid == uid:
                self._state.decisions.refuse(job, obstacle=rest)
            self._dirty(key)
        for uid in overtaken.keys() & cycle.keys.keys():
            # Let go, but nothing is made of it yet: it waits again.
            self._state.decisions.withdraw_verdict(uid)
            self.look_again()
        if cycle.doubts:
            self._renew_later(_DOUBT_SECONDS)

    def _take_over(
        self, verdict: Verdict, before: Verdict | None, *, rank: int, key: str, at_once: bool = False
    ) -> None:
        """Let the job be told of another verdict than `before`, now or after a while."""
        now = time.monotonic()
        if at_once or not self._teller.hold_back(verdict, before, rank=rank, now=now):
            self._state.decisions.set_verdict(verdict.key, verdict=verdict)
            (self._let_go if isinstance(verdict, Admitted) else self._dirty)(key)
        elif rank < RENEWED_JOBS:
            self._renew_later(self._teller.renewed_in(verdict.key, now=now))

    # --- what those who wait may expect ------------------------------------------------------------------------

    async def _foresee_always(self) -> None:
        """Beside the queue, which must not wait for it, and not all the time."""
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
        """Reckon when the waiting jobs are going to start; those for whom that is news get dirty."""
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
            # It was begun under other limits.
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
        # Time alone changes what may be expected.
        self._renew_later(RENEWAL_SECONDS)

    def _take_back(self, foreseen: Mapping[str, QueuePlace], *, cycle: Cycle) -> None:
        """Let those be told at once that are foreseen to start no more."""
        for uid, key in cycle.keys.items():
            told = self._state.decisions.verdicts.get(uid)
            if uid in foreseen or not isinstance(told, Waits) or told.queue is None:
                continue
            if told.queue.estimated_start is not None and told.queue.basis != BASIS_OF_WAY:
                queue = QueuePlace(position=told.queue.position, reserved=told.queue.reserved)
                self._state.decisions.set_verdict(uid, verdict=msgspec.structs.replace(told, queue=queue))
                self._dirty(key)

    def _renew_later(self, seconds: float) -> None:
        """Another look after that time at the latest: one timer for all that is held back."""
        loop = asyncio.get_running_loop()
        if self._renewal is not None:
            if self._renewal.when() <= loop.time() + seconds:
                return
            self._renewal.cancel()
        self._renewal = loop.call_later(seconds, self._renew)

    def _renew(self) -> None:
        self._renewal = None
        self._unsettled.set()
