"""Preemption notices: which running jobs are to end, for which waiting job, and whether that still holds."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Order
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.queue.cycle import Cycle, decide, survey
from dovetail_operator.queue.cycle_caches import CycleCaches
from dovetail_operator.queue.drains import drain_notices
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State

# How long until preemption is checked again without a change.
_CHECK_SECONDS: Final = 5.0


class PreemptionNotices:
    """Keeps the decisions' notices current, and marks their jobs as changed."""

    def __init__(
        self,
        state: State,
        *,
        caches: CycleCaches,
        changed: Callable[[str], None],
        wake_up: WakeUp,
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._caches = caches
        self._changed = changed
        self._wake_up = wake_up
        self._now = now

    def update(self, cycle: Cycle) -> None:
        """Announce the preemptions of the cycle and the restarts of drained jobs, and withdraw all others."""
        before = self._state.decisions.notices
        now = drain_notices(self._state, cycle=cycle) | notices_of(cycle.orders, state=self._state)
        self._state.decisions.set_notices(now)
        for key, job in self._state.store.jobs.items() if before or now else ():
            if before.get(job.metadata.uid) != now.get(job.metadata.uid):
                self._changed(key)
        if cycle.waiting and (self._state.preemption.gap or now):
            # Jobs become old enough to be preempted by time alone.
            self._wake_up.within(seconds=_CHECK_SECONDS)

    def still_hold(self, seen: Observed) -> bool:
        """Whether a cycle right now still starts the job for which this one is about to end.

        For a job that leaves a drained node, that is the job itself.
        """
        cycle = survey(self._state, now=self._now(), caches=self._caches)
        if seen.notice is not None and seen.notice.by == DRAIN:
            return seen.job.metadata.uid in drain_notices(self._state, cycle=cycle)
        for _ in decide(self._state, cycle=cycle):
            pass
        order = cycle.orders.get(seen.job.metadata.uid)
        return order is not None and seen.notice is not None and order.by.key == seen.notice.by


def notices_of(orders: Mapping[str, Order], *, state: State) -> dict[str, Notice]:
    """The notices of the preempted jobs, by UID."""
    rules = state.preemption
    by_uid = {job.metadata.uid: job for job in state.store.jobs.values() if job.metadata.uid in orders}
    return {
        uid: Notice(
            by=order.by.key,
            message=order.reclaim or _preemptor_name(by_uid[uid], by=order.by),
            grace_seconds=rules.reclaim_grace_seconds if order.reclaim else rules.grace_seconds,
        )
        for uid, order in orders.items()
        if uid in by_uid
    }  # fmt: skip


def _preemptor_name(job: GPUJob, *, by: Candidate) -> str:
    namespace, _, name = by.name.partition("/")
    # A message must not reveal the names of jobs in other namespaces.
    who = name if namespace == job.metadata.namespace else "a job of another namespace"
    return f"Is preempted for {who} of priority {by.priority}, its own is {job.spec.priority}"
