"""One job is brought to what it should be: what has to be done is done, then what is true is written."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import key_of
from dovetail.api.resources import GPUJOBS, JOBS
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import is_going, is_parent, wants_admission
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound, StatusError
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail_operator.controller.event_handlers import Changes
from dovetail_operator.devices import memory_overuse
from dovetail_operator.devices.bad_devices import announcement_of
from dovetail_operator.events.announcement import Announcement, announcement
from dovetail_operator.job import liveness_warning
from dovetail_operator.job.actions import (
    Action,
    ChangeTask,
    CreateJob,
    CreateTask,
    DeleteGPUJob,
    DeleteJob,
    JoinQueue,
    PatchJob,
)
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.plan import is_told_first
from dovetail_operator.job.status_pacing import Pacing
from dovetail_operator.lifecycle.preemption import is_due
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from dovetail_operator.metrics import Counters
from dovetail_operator.queue.loop import Queueing
from dovetail_operator.state.state import State
from dovetail_operator.writes import jobs, tasks
from dovetail_operator.writes.pods import announce_preemption


class Straying:
    """Finds them; ask it each time that a job is looked at."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Keys of jobs of which it is known that they have lost their batch Job.
        self._lost: set[str] = set()

    async def found(self, key: str, seen: Observed | None) -> Job | None:
        """The batch Job, with its label again, of a job that is said to run and seems to have none."""
        if seen is None or seen.child is not None or seen.job.status.phase != "Running":
            self._lost.discard(key)
            return None
        if key in self._lost:
            return None
        found = await jobs.find_child(self._client, seen.job)
        self._lost.add(key)
        return found


log = get_logger("dovetail.operator")

_UNPROCESSABLE: Final = 422


class Settler:
    """Settles one job at a time; several may be under way at once, each another.

    `post` publishes an event about a job. `term` is the number of our term of office, None where nobody counts terms;
    `mps_directory` is where pods find MPS on their node, empty where they use none.
    """

    def __init__(
        self,
        client: Client,
        state: State,
        *,
        changes: Changes,
        queue: WorkQueue,
        queueing: Queueing,
        pacing: Pacing,
        counters: Counters,
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
        term: Callable[[], int | None],
        mps_directory: str,
    ) -> None:
        self._client = client
        self._state = state
        self._changes = changes
        self._queue = queue
        self._queueing = queueing
        self._pacing = pacing
        self._counters = counters
        self._post = post
        self._now = now
        self._term = term
        self._mps_directory = mps_directory
        self._straying = Straying(client)

    async def settle(self, key: str) -> None:
        """Bring one job to what it should be: do what has to be done, then write what is true."""
        if self._state.is_unreadable(key):
            # No status can be written on a version that is not the newest; `UnreadableJobs` writes what is wrong.
            return
        seen = await self._observe(key)
        if seen is None:
            return
        if not self._is_decided(seen):
            # Perhaps its time has just come, of which no change tells.
            self._queueing.look_again()
            return
        outcome = self._outcome_of(seen)
        if outcome is None:
            # The job is to be told so.
            self._queue.add(key)
            return
        # What the annotation of the pods names has to stand in the status before there are any.
        # And an array says that it was seen before its many tasks are made.
        is_new_array = is_parent(seen.job) and seen.job.status.phase is None
        told = is_new_array or is_told_first(outcome.status, before=seen.job.status, child=seen.child)
        if told and not await self._tell(seen.job, outcome.status):
            return
        if not await self._act_on(seen, outcome.actions):
            # What was decided does not hold any more.
            self._queue.add(key)
            return
        if not told and not self._may_wait(seen.job, outcome.status):
            await self._tell(seen.job, outcome.status)
        if outcome.status.preemption != seen.job.status.preemption:
            # What the status says now is what the pods are to say next.
            self._queue.add(key)
        for notice in outcome.notify:
            await announce_preemption(self._client, notice.pod, at=notice.at)
        if outcome.wake_at is not None:
            self._queue.add_later(key, seconds=(outcome.wake_at - self._now()).total_seconds())

    async def _observe(self, key: str) -> Observed | None:
        """All that bears on the job of that key; None where there is none."""
        seen = self._state.observe(key, now=self._now())
        for other in self._state.dependencies.take_news():
            self._queue.add(other)
        if (strayed := await self._straying.found(key, seen)) is None:
            return seen
        self._state.put_child(strayed)
        return self._state.observe(key, now=self._now())

    def _outcome_of(self, seen: Observed) -> Outcome | None:
        """What follows for the job; None where our own code has just failed on it."""
        if is_due(seen) and not self._queueing.still_makes_way(seen):
            self._state.notices.pop(seen.job.metadata.uid, None)
            seen = replace(seen, notice=None)
        try:
            return reconcile(seen)
        except Exception as error:
            if not self._state.fails_on(seen.job, error):
                raise
            # The room that it was let go to is free again.
            self._queueing.look_again()
            return None

    def _is_decided(self, seen: Observed) -> bool:
        """Whether number and verdict are there; both come with the queue's next cycle, which makes the job dirty."""
        if is_going(seen.job):
            return True
        if seen.number is None:
            return False
        return bool(seen.verdict or seen.obstacle or not wants_admission(seen.job, seen.child))

    async def _act_on(self, seen: Observed, actions: Sequence[Action]) -> bool:
        """Do them in their order, the tasks of an array side by side; False when one of them cannot be done."""
        if is_parent(seen.job):
            found = await asyncio.gather(*(self._act(seen, action) for action in actions), return_exceptions=True)
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            return all(found)
        for action in actions:
            if not await self._act(seen, action):
                return False
        return True

    async def _act(self, seen: Observed, action: Action) -> bool:
        """Do it; False when it turned out that it cannot be done."""
        try:
            return await self._do(seen, action)
        except Conflict:
            # It was decided on what is not so any more.
            await self._reread(seen.job)
            if seen.child is not None:
                await self._reread_child(seen.child)
            return False

    async def _do(self, seen: Observed, action: Action) -> bool:
        match action:
            case CreateJob():
                return await self._create(seen, action)
            case PatchJob():
                assert seen.child is not None, "only a Job that is there is changed"
                if not await self._patch(seen.child, action):
                    return False
                if action.spec.get("suspend") is False:
                    self._count_admission(seen.job)
                self._queueing.room_changed()
            case DeleteJob():
                assert seen.child is not None, "only a Job that is there is deleted"
                await jobs.delete_job(self._client, seen.child)
            case JoinQueue():
                self._changes.job_changed(await jobs.join_queue(self._client, seen.job, queue=action.queue))
            case DeleteGPUJob():
                await jobs.delete_gpujob(self._client, seen.job)
            case CreateTask():
                return self._took(seen.job, await tasks.create(self._client, seen.job, action))
            case ChangeTask():
                return self._took(seen.job, await tasks.change(self._client, action))
        return True

    def _took(self, parent: GPUJob, found: GPUJob | Obstacle) -> bool:
        if isinstance(found, Obstacle):
            self._changes.refuse(parent, found)
            return False
        self._changes.job_changed(found)
        return True

    async def _patch(self, child: Job, action: PatchJob) -> bool:
        try:
            self._state.put_child(await jobs.patch_job(self._client, child, action))
        except StatusError as error:
            if error.code != _UNPROCESSABLE or "template" not in action.spec:
                raise
            # Before Kubernetes 1.36 a Job that has begun takes no other plan: it is made anew.
            await jobs.delete_job(self._client, child)
            return False
        return True

    async def _create(self, seen: Observed, action: CreateJob) -> bool:
        found = await jobs.create_job(
            self._client, seen.job, action, term=self._term(), mps_directory=self._mps_directory
        )
        if isinstance(found, Obstacle):
            self._changes.refuse(seen.job, found)
            return False
        self._state.put_child(found)
        if (warning := liveness_warning.warning_of(seen.job, seen.ask)) is not None:
            self._post(warning)
        if not action.manifest["spec"].get("suspend"):
            self._count_admission(seen.job)
        # Its room is claimed as on the way from now on, by the batch Job that is there.
        self._queueing.room_changed()
        return True

    def _count_admission(self, job: GPUJob) -> None:
        self._counters.admissions.inc()
        waited = (self._now() - moment(job.metadata.creation_timestamp)).total_seconds()
        self._counters.wait_seconds.observe(max(0.0, waited))

    def _may_wait(self, job: GPUJob, status: GPUJobStatus) -> bool:
        """Whether a status is written a little later, together with what follows; the job is looked at again then."""
        wait = self._pacing.wait_seconds(
            job.metadata.uid, before=job.status, after=status, running=self._state.at_work, now=time.monotonic()
        )
        if wait > 0:
            self._queue.add_later(key_of(job.metadata), seconds=wait)
        return wait > 0

    async def _tell(self, job: GPUJob, status: GPUJobStatus) -> bool:
        """Write the status if it is news, and post an event if phase or reason is. False if it could not be written."""
        if not jobs.difference(job.status, status):
            return True
        key = key_of(job.metadata)
        try:
            written = await jobs.write_status(self._client, job, status)
        except NotFound:
            self._changes.job_gone(job)
            return False
        except Conflict:
            await self._reread(job)
            self._queue.add(key)
            return False
        self._pacing.written(job.metadata.uid, now=time.monotonic())
        self._state.put_job(written)
        if status.phase != job.status.phase:
            self._changes.wake_dependents(key)
        for told in (announcement_of(job, status), memory_overuse.announcement_of(job, status)):
            if told is not None:
                self._post(told)
        news = announcement(job, status)
        if news is not None:
            log.info("job changed", job=key, phase=status.phase, reason=status.reason, message=news.message)
            self._post(news)
        return True

    async def _reread(self, job: GPUJob) -> None:
        try:
            found = await self._client.get(GPUJOBS, job.metadata.name, as_type=GPUJob, namespace=job.metadata.namespace)
        except NotFound:
            self._changes.job_gone(job)
        else:
            self._state.put_job(found)

    async def _reread_child(self, child: Job) -> None:
        meta = child.metadata
        try:
            found = await self._client.get(JOBS, meta.name, as_type=Job, namespace=meta.namespace)
        except NotFound:
            self._state.child_changed("DELETED", child)
        else:
            self._state.put_child(found)
