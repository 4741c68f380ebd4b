"""Overtaken plans: plans of started jobs that newer facts contradict for too long.

A reconcile takes an overtaken plan back and queues the job again, or writes the plan with other nodes for lost workers.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from dovetail_operator.job.plan_doubts import Doubts, rest_after
from dovetail_operator.queue.cycle import Cycle
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State

# How long until doubtful plans are checked again without a change.
_CHECK_SECONDS: Final = 1.0


class OvertakenPlans:
    """Keeps the decisions' overtaken plans current, and marks their jobs as changed."""

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
