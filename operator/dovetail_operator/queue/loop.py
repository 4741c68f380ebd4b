"""The scheduling loop: one cycle after another over the waiting jobs.

A cycle writes its decisions into the state, and marks the jobs for which one of them has changed. The reconciles of
these jobs write what follows to the API server.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dovetail.api.gpujob import Reason
from dovetail.api.meta import key_of
from dovetail.jobs.cpu_fallback import BUSY
from dovetail.jobs.runs import wants_more
from dovetail.kube.retry import always, retrying
from dovetail.kube.retry_log import log_failure
from dovetail.queue.verdicts import Verdict, Waits
from dovetail_operator.job.plan_doubts import Doubts, rest_after
from dovetail_operator.metrics import Counters
from dovetail_operator.queue.cycle import Cycle, decide, next_fallback_seconds, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.move_planner import Moves
from dovetail_operator.queue.preemption_notices import PreemptionNotices
from dovetail_operator.queue.start_estimates import StartEstimates
from dovetail_operator.queue.time_slices import Pausable, TimeSlices
from dovetail_operator.queue.verdict_updates import VerdictUpdates
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.decisions import RUSH_LASTS
from dovetail_operator.state.state import State
from dovetail_operator.writes.job_numbers import Numbers

if TYPE_CHECKING:
    from dovetail_operator.queue.reshaping.decisions import Reshaping

# How long a change of the free room waits if no job does: plans are still checked, but no start is delayed by that.
_UNHURRIED_SECONDS: Final = 2.0
# The share of time that cycles may take, so that constant changes leave room for other work: after a change to a job,
# which its user waits for; after a change to the free room only; and if no job waits.
_SHARE: Final = 0.2
_SHARE_OF_ROOM: Final = 0.1
_SHARE_UNHURRIED: Final = 0.04
# Timestamps have whole seconds, so a time that is due may be less than one second away.
_TIMER_SECONDS: Final = 1.0
# How long until doubtful plans are checked again without a change.
_CHECK_SECONDS: Final = 1.0
# Reasons whose messages quote a GPUQuota.
_OF_LIMITS: Final[frozenset[Reason]] = frozenset({"Quota", "Reserved"})


class OvertakenPlans:
    """Keeps the plans of started jobs that newer facts contradict for too long, and marks their jobs as changed.

    A reconcile takes an overtaken plan back and queues the job again, or writes the plan with other nodes for lost
    workers.
    """

    def __init__(
        self, state: State, *, changed: Callable[[str], None], wake_up: WakeUp, now: Callable[[], datetime]
    ) -> None:
        self._state = state
        self._changed = changed
        self._wake_up = wake_up
        self._now = now
        self._doubts = Doubts()

    def update(self, cycle: Cycle) -> None:
        """Find the overtaken plans among the cycle's doubts, and note the plans with replaced workers."""
        decisions = self._state.decisions
        overtaken = self._doubts.overtaken(cycle.doubts, now=time.monotonic())
        news = overtaken.keys() - decisions.overtaken.keys()
        decisions.set_overtaken(overtaken)
        moved = {uid for uid, plan in cycle.replacements.items() if decisions.replacements.get(uid) != plan}
        decisions.set_replacements(cycle.replacements)
        for uid in moved & cycle.planned.keys():
            self._changed(cycle.planned[uid])
        for uid in news & cycle.planned.keys():
            self._rest(cycle, uid=uid)
            self._changed(cycle.planned[uid])
        for uid in overtaken.keys() & cycle.keys.keys():
            # Admitted, but without a batch Job yet: the job waits again.
            decisions.withdraw_verdict(uid)
            self._wake_up.at_once()
        if cycle.doubts:
            self._wake_up.within(seconds=_CHECK_SECONDS)

    def _rest(self, cycle: Cycle, *, uid: str) -> None:
        """Keep the job from getting a new plan for a time, if the doubt asks for that."""
        job, rest = self._state.store.jobs.get(cycle.planned[uid]), rest_after(cycle.doubts[uid], now=self._now())
        # The job may have been deleted since the cycle began.
        if rest is not None and job is not None and job.metadata.uid == uid:
            self._state.decisions.refuse(job, obstacle=rest)


class SchedulingLoop:
    """Runs cycles while `run` goes on.

    `changed` marks a job as changed by its key, `admitted` one that may start. `notices` says which preemptions hold.
    `is_busy` says whether many jobs wait for their reconcile.
    """

    def __init__(
        self,
        state: State,
        *,
        numbers: Numbers,
        counters: Counters,
        changed: Callable[[str], None],
        admitted: Callable[[str], None],
        now: Callable[[], datetime],
        rng: random.Random,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._state = state
        self._numbers = numbers
        self._counters = counters
        self._changed = changed
        self._now = now
        self._rng = rng
        self._caches = caches = caches_for(state)
        self._wake_up = wake_up = WakeUp()
        self._updates = VerdictUpdates(state.decisions, changed=changed, admitted=admitted, wake_up=wake_up)
        self._overtaken = OvertakenPlans(state, changed=changed, wake_up=wake_up, now=now)
        self._reshaping: Reshaping | None = None
        self.notices = PreemptionNotices(state, caches=caches, changed=changed, wake_up=wake_up, now=now)
        self._estimates = StartEstimates(
            state, caches=caches, updates=self._updates, wake_up=wake_up, now=now, is_busy=is_busy
        )
        self._moves = Moves(state, caches=caches, counters=counters, changed=changed, wake_up=wake_up, now=now)
        self._renewed_reasons = frozenset[Reason]()
        self._some_job_waits = True

    def jobs_changed(self) -> None:
        """Run a cycle soon: a job may start, or no longer has to."""
        self._wake_up.at_once()

    def limits_changed(self) -> None:
        """Run a cycle soon: limits have changed. All messages that quote them are renewed."""
        self._renewed_reasons = _OF_LIMITS
        self._estimates.limits_changed()
        self._wake_up.at_once()

    def rules_changed(self) -> None:
        """Run a cycle soon, in which all jobs are read again: the configuration has changed."""
        self._caches.clear()
        self.limits_changed()

    def room_changed(self) -> None:
        """Run a cycle after room was taken or released: soon if a job waits, else later."""
        if self._some_job_waits:
            self._wake_up.soon()
        else:
            self._wake_up.within(seconds=_UNHURRIED_SECONDS)

    async def run(self) -> None:
        """Run cycles, estimates and plans of moves until cancelled."""
        self._wake_up.soon()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_cycles())
            tasks.create_task(self._estimates.run())
            tasks.create_task(self._moves.run())

    async def _run_cycles(self) -> None:
        while True:
            # The queue must go on, whatever fails.
            await self._rest(
                await retrying(self._run_due_cycle, may_retry=always, failed=self._request_again, rng=self._rng)
            )

    async def _run_due_cycle(self, _attempt: int) -> float:
        """Wait until a cycle is due, and run it. Returns its CPU time in seconds."""
        await self._wake_up.wait()
        started = time.monotonic()
        numbered: dict[str, str] = {}
        try:
            numbered = await self._number_jobs()
            return await self._run_cycle()
        finally:
            for uid, key in numbered.items():
                # The cycle has marked the jobs that got a verdict. The others are held, or an obstacle keeps them.
                if uid not in self._state.decisions.verdicts:
                    self._changed(key)
            self._counters.cycle_seconds.observe(time.monotonic() - started)

    def _request_again(self, error: Exception, wait_seconds: float) -> None:
        log_failure("queue is tried again", error=error, wait=wait_seconds)
        self._wake_up.soon()

    async def _number_jobs(self) -> dict[str, str]:
        """Give every new job its number, with one write for all. Returns the jobs' keys by UID."""
        new, numbered = self._state.unnumbered(), dict[str, str]()
        if not new:
            return numbered
        given = await self._numbers.give(new, shown=self._state.store.jobs.values())
        for job in new:
            key, uid = key_of(job.metadata), job.metadata.uid
            known = self._state.store.jobs.get(key)
            # The job may have been deleted meanwhile.
            if known is not None and known.metadata.uid == uid:
                self._state.decisions.set_number(uid, number=given[uid])
                # A job gets its number once in its life, whichever operator runs.
                self._state.count_submitted(known)
                numbered[uid] = key
        return numbered

    async def _run_cycle(self) -> float:
        """Run one cycle: decide, then update verdicts, plans and notices. Returns the CPU time in seconds."""
        slices = TimeSlices()
        self._state.decisions.expire_refusals(now=self._now())
        cycle = survey(self._state, now=self._now(), caches=self._caches)
        if (seconds := next_fallback_seconds(cycle)) is not None:
            self._wake_up.within(seconds=seconds)
        self._drop_other_jobs(cycle)
        await self._update_verdicts(cycle, slices=slices)
        for seconds in cycle.timers:
            self._wake_up.within(seconds=max(_TIMER_SECONDS, seconds))
        self._overtaken.update(cycle)
        self._reshape(cycle)
        self.notices.update(cycle)
        self._moves.update(cycle)
        self._scale_up(cycle)
        if self._some_job_waits:
            self._estimates.request()
        return slices.busy_seconds

    def _reshape(self, cycle: Cycle) -> None:
        """Decide which GPUs are partitioned again, from the time on at which the configuration enables it."""
        if self._reshaping is None:
            if not self._state.reshape.enabled:
                return
            from dovetail_operator.queue.reshaping.decisions import Reshaping  # noqa: PLC0415 - optional

            self._reshaping = Reshaping(self._state, wake_up=self._wake_up, now=self._now)
        self._reshaping.update(cycle)

    def _scale_up(self, cycle: Cycle) -> None:
        """Decide which running elastic job restarts with more workers, where some were requested."""
        store, decisions = self._state.store, self._state.decisions
        elastic = [job for job in store.jobs_that_ran.values() if job.status.elastic is not None]
        wanted = [job for job in elastic if wants_more(job, child=store.child_of(job))]
        if wanted:
            from dovetail_operator.queue.scale_ups import ScaleUps  # noqa: PLC0415 - most operators never need it

            ScaleUps(self._state, changed=self._changed).update(cycle, wanted=wanted)
        elif decisions.scale_ups:
            decisions.set_scale_ups(frozenset())

    def _drop_other_jobs(self, cycle: Cycle) -> None:
        """Drop what is known of jobs that no longer wait, and mark the jobs on which our own code failed."""
        for key in cycle.failed:
            self._changed(key)
        self._note_rush(cycle)
        self._updates.keep(cycle.keys.keys())
        self._estimates.keep(cycle.keys)
        self._some_job_waits = bool(cycle.waiting)

    def _note_rush(self, cycle: Cycle) -> None:
        """Record how much ends and starts. After a rush, the statuses that have waited for its end are written."""
        decisions, was_rush = self._state.decisions, self._state.decisions.is_rush
        have_run = self._state.store.jobs_that_ran
        preempted = {key: job.status.preemption for key, job in have_run.items() if job.status.phase == "Preempted"}
        decisions.set_at_work(
            starting=sum(each.workers for each in cycle.on_the_way),
            ended=sum(made is not None and made.by in cycle.keys for made in preempted.values()),
            now=cycle.now,
        )
        if decisions.is_rush:
            self._wake_up.within(seconds=RUSH_LASTS.total_seconds())
        elif was_rush:
            for key in preempted:
                self._changed(key)

    async def _update_verdicts(self, cycle: Cycle, *, slices: TimeSlices) -> None:
        """Decide on all waiting jobs. Jobs with a new verdict are marked as changed."""
        renewed, self._renewed_reasons = self._renewed_reasons, frozenset()
        known, pausable, rank = self._state.decisions.verdicts, Pausable[Verdict](slices), 0
        verdicts = decide(
            self._state,
            cycle=cycle,
            foreseen=self._estimates.places,
            previous=known,
            renewed_reasons=renewed,
            pause=pausable.pause,
        )
        async with aclosing(pausable.over(verdicts)) as made:
            async for verdict in made:
                # All of the first jobs have a verdict here, so a later one counts as far back however many keep theirs.
                before, key = known.get(verdict.key), cycle.keys[verdict.key]
                at_once = isinstance(verdict, Waits) and verdict.reason in renewed
                self._updates.update(verdict, before=before, rank=rank, key=key, at_once=at_once)
                rank += 1
        self._date(cycle)

    def _date(self, cycle: Cycle) -> None:
        """Let the statuses say since when jobs wait: a new default of their namespace changes no verdict."""
        for uid in cycle.undated:
            verdict = self._state.decisions.verdicts.get(uid)
            if isinstance(verdict, Waits) and verdict.reason in BUSY:
                self._changed(cycle.keys[uid])

    async def _rest(self, busy_seconds: float) -> None:
        """Leave time to other work after a cycle that took this much."""
        await asyncio.sleep(busy_seconds * (1 / _SHARE - 1))
        share = _SHARE_OF_ROOM if self._some_job_waits else _SHARE_UNHURRIED
        await self._wake_up.pause(seconds=busy_seconds * (1 / share - 1 / _SHARE))
