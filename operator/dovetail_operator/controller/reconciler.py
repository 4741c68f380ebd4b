"""Reconciles one GPUJob: observe it, decide what follows, run the actions, write the status."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.jobs.batch_job import is_going, wants_admission
from dovetail.kube.client import Client
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.controller.action_runner import ActionRunner
from dovetail_operator.controller.status_writer import StatusWriter
from dovetail_operator.job.observation import Observed
from dovetail_operator.lifecycle.preemption import is_due
from dovetail_operator.lifecycle.reconcile import Outcome, carries_plan, is_status_first, reconcile
from dovetail_operator.queue.loop import SchedulingLoop
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.state.state import State
from dovetail_operator.writes import jobs
from dovetail_operator.writes.pods import RETRY_SECONDS, DisruptionRefusedError, announce_preemption


class Reconciler:
    """Reconciles GPUJobs. Several may be in progress at once, each for another job."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        queue: WorkQueue,
        scheduling: SchedulingLoop,
        pending: PendingWrites,
        actions: ActionRunner,
        statuses: StatusWriter,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._state = state
        self._queue = queue
        self._scheduling = scheduling
        self._pending = pending
        self._actions = actions
        self._statuses = statuses
        self._now = now
        # Running jobs whose batch Job was looked up at the API server and not found.
        self._without_child: set[str] = set()
        state.store.follow(self)

    def observe(self, job: GPUJob) -> None:
        """Do nothing: `reconcile` observes a job when its turn comes."""

    def drop(self, job: GPUJob) -> None:
        """Drop what is kept of a deleted GPUJob."""
        self._without_child.discard(key_of(job.metadata))

    async def reconcile(self, key: str) -> None:
        """Observe one job, decide, run the actions and write its status."""
        seen = await self._observe(key)
        if seen is None:
            return
        if not self._is_decided(seen):
            # The job may be due by time, without an event.
            self._scheduling.jobs_changed()
        elif (outcome := self._outcome_of(seen)) is None:
            # Our own code failed on the job, and its status has to say so.
            self._queue.add(key)
        else:
            await self._carry_out(seen, outcome=outcome)

    async def _carry_out(self, seen: Observed, *, outcome: Outcome) -> None:
        """Run the actions and write the status, in the order in which one follows from the other."""
        job, key = seen.job, key_of(seen.job.metadata)
        status_first = is_status_first(seen, outcome=outcome)
        if status_first and not await self._statuses.write(job, status=outcome.status):
            return
        try:
            done = await self._actions.run(seen, actions=outcome.actions)
        except DisruptionRefusedError:
            # Meanwhile the next cycle proves again whether this job is to end.
            self._queue.add_later(key, seconds=RETRY_SECONDS)
            return
        if not done:
            # An object that the outcome depends on has changed.
            self._queue.add(key)
            return
        if carries_plan(outcome):
            self._statuses.postpone(job)
        elif not status_first:
            await self._statuses.write_or_postpone(job, status=outcome.status)
        if outcome.status.preemption != job.status.preemption and outcome.status.phase != "Preempted":
            # The next reconcile annotates the pods with what the status says now.
            self._queue.add(key)
        for notice in outcome.notify:
            await announce_preemption(self._client, pod=notice.pod, at=notice.at)
        if outcome.wake_at is not None:
            self._queue.add_later(key, seconds=(outcome.wake_at - self._now()).total_seconds())

    async def _observe(self, key: str) -> Observed | None:
        """Observe the job. None if it does not exist or must not be reconciled now."""
        if self._state.store.is_unreadable(key):
            # A status can only be written on the newest version. `UnreadableJobs` writes what is wrong with it.
            return None
        if wait := self._pending.wait_seconds(key):
            self._queue.add_later(key, seconds=wait)
            return None
        seen = self._state.observe(key, now=self._now())
        for other in self._state.store.dependencies.take_news():
            self._queue.add(other)
        if await self._recovers_child(key, seen=seen):
            self._queue.add(key)
            return None
        return seen

    async def _recovers_child(self, key: str, *, seen: Observed | None) -> bool:
        """Restore the label of a running job's batch Job, if only the label is missing.

        With the label the watch brings the batch Job again. A job without a batch Job is looked up once. Returns
        whether the batch Job exists.
        """
        if seen is None or seen.child is not None or seen.job.status.phase != "Running":
            self._without_child.discard(key)
            return False
        if key in self._without_child:
            return False
        self._without_child.add(key)
        found = await jobs.find_child(self._client, job=seen.job)
        if found is None:
            return False
        self._pending.await_child(key, written=found, store=self._state.store)
        return True

    def _is_decided(self, seen: Observed) -> bool:
        """Whether number and verdict exist.

        Both come with the queue's next cycle, which marks the job dirty.
        """
        if is_going(seen.job):
            return True
        if seen.number is None:
            return False
        return bool(seen.verdict or seen.obstacle or not wants_admission(seen.job, child=seen.child))

    def _outcome_of(self, seen: Observed) -> Outcome | None:
        """Decide what follows for the job; None if our own code has just failed on it."""
        if is_due(seen) and not self._scheduling.notices.still_hold(seen):
            self._state.decisions.withdraw_notice(seen.job.metadata.uid)
            seen = replace(seen, notice=None)
        try:
            return reconcile(seen)
        except Exception as error:
            if not self._state.decisions.record_failure(seen.job, error=error):
                raise
            # The room of its plan is free again.
            self._scheduling.jobs_changed()
            return None
