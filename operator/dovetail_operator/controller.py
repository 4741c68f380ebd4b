"""The operator at work: changes mark jobs dirty, workers bring each dirty job to what it should be, a loop queues.

Nothing here is remembered that the API server does not have: after a kill at any point the same result comes about.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJob, GPUJobStatus, QueuePlace
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, KubeError, NotFound, StatusError
from dovetail.kube.objects import Job, Node, Pod
from dovetail.kube.reflector import EventType, key_of
from dovetail.kube.resources import GPUJOBS, JOBS
from dovetail.kube.retry import BACKOFF
from dovetail.logs import get_logger
from dovetail.queue.admission import Verdict, Waits
from dovetail.workqueue import WorkQueue
from dovetail_operator import effects, notices, overuse, probes, taskeffects
from dovetail_operator.actions import Action, ChangeTask, CreateJob, CreateTask, DeleteGPUJob, DeleteJob, PatchJob
from dovetail_operator.admission import RENEWAL_SECONDS, RENEWED_JOBS, Cycle, Teller, decide, estimates, survey
from dovetail_operator.announce import Announcement, announcement
from dovetail_operator.arrays import parent_key
from dovetail_operator.badcards import announcement_of
from dovetail_operator.counting import departed
from dovetail_operator.durations import moment
from dovetail_operator.evictions import notices_of
from dovetail_operator.metrics import Counters
from dovetail_operator.numbers import Numbers
from dovetail_operator.observed import Observed, Obstacle, wants_admission
from dovetail_operator.overuse_eviction import PodEvictions
from dovetail_operator.plans import Doubts, is_told_first
from dovetail_operator.preempting import is_due
from dovetail_operator.reconcile import reconcile
from dovetail_operator.state import State

log = get_logger("dovetail.operator")

WORKERS: Final = 16
_SETTLING_SECONDS: Final = 0.05
# A cycle may take this part of the time, so that changes that come without end leave room for the rest.
_CYCLE_SHARE: Final = 0.2
_SLICE_SECONDS: Final = 0.02
# The same for what waiting jobs may expect, for which nobody waits as they wait for room.
_FORESIGHT_SHARE: Final = 0.05
_FORESIGHT_SECONDS: Final = 1.0
_CLOCK_SECONDS: Final = 5.0
# How long until plans that do not seem to hold are looked at again, without any change.
_DOUBT_SECONDS: Final = 1.0
_UNPROCESSABLE: Final = 422
# How long until it is looked again who may make way, without any change.
_EVICTION_SECONDS: Final = 5.0
_OBSTACLE_SECONDS: Final = {"Evaluating": 1.0}
_OBSTACLE_SECONDS_ELSE: Final = 30.0


class _Breath:
    """Lets others have their turn while a long piece of work goes on, and rests for a while where that is wished."""

    def __init__(self, *, rest_seconds: float = 0.0) -> None:
        self._rest_seconds = rest_seconds
        self._due = time.monotonic() + _SLICE_SECONDS

    async def take(self) -> None:
        if time.monotonic() >= self._due:
            await asyncio.sleep(self._rest_seconds)
            self._due = time.monotonic() + _SLICE_SECONDS


class Controller:
    """Drives all GPUJobs. Feed it every change, then `run` it; `post` publishes an event about a job.

    `term` is the number of our term of office, None where nobody counts terms;
    `mps_directory` is where pods find MPS on their node, empty where they use none.
    """

    def __init__(
        self,
        client: Client,
        state: State,
        *,
        numbers: Numbers,
        counters: Counters,
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
        rng: random.Random,
        term: Callable[[], int | None] = lambda: None,
        mps_directory: str = "",
    ) -> None:
        self.state = state
        self.queue = WorkQueue()
        self._client = client
        self._numbers = numbers
        self._counters = counters
        self._post = post
        self._now = now
        self._rng = rng
        self._term = term
        self._mps_directory = mps_directory
        self._teller = Teller()
        self._doubts = Doubts()
        self._evictions = PodEvictions(client, is_of_a_job=state.is_of_a_job)
        self._unsettled = asyncio.Event()
        self._renewal: asyncio.TimerHandle | None = None
        self._foreseen: dict[str, QueuePlace] = {}
        self._looked = asyncio.Event()

    # --- changes -----------------------------------------------------------------------------------------------

    def job_changed(self, job: GPUJob) -> None:
        """A GPUJob was seen."""
        if self.state.put_job(job):
            self._touch(key_of(job.metadata))

    def job_gone(self, job: GPUJob) -> None:
        """A GPUJob is no more."""
        key = key_of(job.metadata)
        if used := departed(self.state, job, now=self._now()):
            self.state.quotas.departed(used)
        self.state.drop_job(key, uid=job.metadata.uid)
        self.queue.forget(key)
        self._unsettled.set()
        self._wake_dependents(key)
        if (parent := parent_key(job)) is not None:
            self.queue.add(parent)

    def child_event(self, type_: EventType, child: Job) -> None:
        """A batch Job with our label has changed."""
        key = self.state.child_changed(type_, child)
        job = self.state.jobs.get(key)
        if job is None:
            return
        if type_ == "DELETED":
            # It may have stood in the way.
            self.state.relent(job)
        self._touch(key)

    def pod_event(self, type_: EventType, pod: Pod) -> None:
        """Any pod has changed."""
        key = self.state.pod_changed(type_, pod)
        if key is not None:
            self.queue.add(key)
        self._unsettled.set()

    def node_event(self, type_: EventType, node: Node) -> None:
        """A Node has changed."""
        if type_ == "DELETED":
            self.state.view.node_gone(node.metadata.name)
        else:
            self.state.view.node_changed(node)
        self._unsettled.set()

    def gpunode_event(self, type_: EventType, gpunode: GPUNode) -> None:
        """A GPUNode has changed."""
        if type_ == "DELETED":
            self.state.gpunode_gone(gpunode.metadata.name)
            self._evictions.gone(gpunode.metadata.name)
        else:
            self._evictions.changed(gpunode)
            for key in self.state.gpunode_changed(gpunode):
                self.queue.add(key)
        self._unsettled.set()

    def quota_event(self, type_: EventType, quota: GPUQuota) -> None:
        """A GPUQuota has changed."""
        if type_ == "DELETED":
            self.state.quotas.drop(quota.metadata.name)
        elif not self.state.quotas.put(quota):
            return
        self._unsettled.set()

    def time_passes(self) -> None:
        """Measurements grow old, and loads settle; room that strangers seemed to take may be free again."""
        if self.state.view.time_passes() or self.state.quotas.keep_for_a_time:
            self._unsettled.set()

    def _touch(self, key: str) -> None:
        self.queue.add(key)
        self._unsettled.set()
        self._wake_dependents(key)

    def _wake_dependents(self, key: str) -> None:
        """What became of a job decides on those that wait for it."""
        job = self.state.jobs.get(key)
        if job is not None and (parent := parent_key(job)) is not None:
            self.queue.add(parent)
        for dependent in self.state.dependencies.dependents_of(key):
            self.queue.add(dependent)
            self._unsettled.set()

    # --- the loops ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled. All caches must be complete by now: a queue that sees half decides wrongly."""
        for key in self.state.jobs:
            self.queue.add(key)
        self._unsettled.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.queue.serve(self._timed, hands=WORKERS, failed=_tried_again, rng=self._rng))
            tasks.create_task(self._admit_always())
            tasks.create_task(self._foresee_always())
            tasks.create_task(self._let_time_pass())
            tasks.create_task(self._evictions.run())

    async def _let_time_pass(self) -> None:
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            self.time_passes()

    async def _timed(self, key: str) -> None:
        with self._counters.reconcile_seconds.time():
            await self._settle(key)

    async def _admit_always(self) -> None:
        failures = 0
        while True:
            await self._unsettled.wait()
            await asyncio.sleep(_SETTLING_SECONDS)
            self._unsettled.clear()
            started = time.monotonic()
            try:
                await self._number()
                await self._admit()
                self._looked.set()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the queue must go on
                wait = BACKOFF.seconds(failures, rng=self._rng)
                failures += 1
                _log_failure("queue is tried again", error, wait)
                self._unsettled.set()
                await asyncio.sleep(wait)
            took = time.monotonic() - started
            self._counters.cycle_seconds.observe(took)
            await asyncio.sleep(took * (1 / _CYCLE_SHARE - 1))

    # --- the queue ---------------------------------------------------------------------------------------------

    async def _number(self) -> None:
        """Give every new job its number, all of them with one write."""
        new = self.state.unnumbered()
        if not new:
            return
        self.state.numbers |= await self._numbers.give(new, shown=self.state.jobs.values())
        for job in new:
            self.queue.add(key_of(job.metadata))

    async def _admit(self) -> None:
        """One look at all jobs that wait; those whose verdict is news get dirty."""
        cycle = survey(self.state, now=self._now())
        self.state.verdicts = {uid: held for uid, held in self.state.verdicts.items() if uid in cycle.keys}
        self._teller.forget_all_but(set(cycle.keys))
        self._foreseen = {uid: place for uid, place in self._foreseen.items() if uid in cycle.keys}
        breath = _Breath()
        for rank, verdict in enumerate(decide(self.state, cycle, foreseen=self._foreseen)):
            before = self.state.verdicts.get(verdict.key)
            if verdict != before:
                self._take_over(verdict, before, rank=rank, key=cycle.keys[verdict.key])
            await breath.take()
        self._doubt(cycle)
        self._make_way(cycle)

    def _make_way(self, cycle: Cycle) -> None:
        """Let those be told that have to make way now, and those that have not any more."""
        before, now = self.state.notices, notices_of(cycle.orders, state=self.state)
        self.state.notices = now
        for key, job in self.state.jobs.items() if before or now else ():
            if before.get(job.metadata.uid) != now.get(job.metadata.uid):
                self.queue.add(key)
        if self.state.preemption.gap and cycle.waiting:
            # Time alone makes jobs old enough to make way.
            self._renew_later(_EVICTION_SECONDS)

    def _still_makes_way(self, seen: Observed) -> bool:
        """Whether the start for which the job is about to be ended is proven as things are at this moment."""
        cycle = survey(self.state, now=self._now())
        for _ in decide(self.state, cycle):
            pass
        order = cycle.orders.get(seen.job.metadata.uid)
        return order is not None and seen.notice is not None and order.by.key == seen.notice.by

    def _doubt(self, cycle: Cycle) -> None:
        """Find the plans that are overtaken; their jobs get dirty."""
        overtaken = self._doubts.overtaken(cycle.doubts, now=time.monotonic())
        news = [key for uid, key in cycle.planned.items() if uid in overtaken.keys() - self.state.overtaken.keys()]
        self.state.overtaken = overtaken
        for key in news:
            self.queue.add(key)
        for uid in overtaken.keys() & cycle.keys.keys():
            # Let go, but nothing is made of it yet: it waits again.
            self.state.verdicts.pop(uid, None)
            self._unsettled.set()
        if cycle.doubts:
            self._renew_later(_DOUBT_SECONDS)

    def _take_over(self, verdict: Verdict, before: Verdict | None, *, rank: int, key: str) -> None:
        """Let the job be told of another verdict than `before`, now or after a while."""
        if not self._teller.hold_back(verdict, before, rank=rank, now=time.monotonic()):
            self.state.verdicts[verdict.key] = verdict
            self.queue.add(key)
        elif rank < RENEWED_JOBS:
            self._renew_later(RENEWAL_SECONDS)

    # --- what those who wait may expect ------------------------------------------------------------------------

    async def _foresee_always(self) -> None:
        """Beside the queue, which must not wait for it, and not all the time."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            started, failure = time.monotonic(), None
            try:
                await self._foresee()
            except Exception as error:  # noqa: BLE001 - estimates may be late, the queue must go on
                failure = error
            took = time.monotonic() - started
            if failure is not None:
                _log_failure("starts are foreseen again", failure, _FORESIGHT_SECONDS)
                self._looked.set()
            await asyncio.sleep(max(_FORESIGHT_SECONDS, took / _FORESIGHT_SHARE))

    async def _foresee(self) -> None:
        """Reckon when the waiting jobs are going to start; those for whom that is news get dirty."""
        cycle = survey(self.state, now=self._now())
        if not cycle.waiting:
            return
        foreseen: dict[str, QueuePlace] = {}
        breath = _Breath(rest_seconds=_SLICE_SECONDS)
        for estimate in estimates(self.state, cycle):
            foreseen.update([estimate] if estimate else ())
            await breath.take()
        self._foreseen = foreseen
        for uid, place in foreseen.items():
            told = self.state.verdicts.get(uid)
            if isinstance(told, Waits) and told.queue is not None:
                position, reserved = told.queue.position, told.queue.reserved
                queue = msgspec.structs.replace(place, position=position, reserved=reserved)
                news = replace(told, queue=queue)
                if news != told:
                    self._take_over(news, told, rank=position - 1, key=cycle.keys[uid])
        # Time alone changes what may be expected.
        self._renew_later(RENEWAL_SECONDS)

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

    # --- one job -----------------------------------------------------------------------------------------------

    async def _settle(self, key: str) -> None:
        """Bring one job to what it should be: do what has to be done, then write what is true."""
        seen = self.state.observe(key, now=self._now())
        if seen is None:
            return
        if not self._is_decided(seen):
            # Perhaps its time has just come, of which no change tells.
            self._unsettled.set()
            return
        if is_due(seen) and not self._still_makes_way(seen):
            self.state.notices.pop(seen.job.metadata.uid, None)
            seen = replace(seen, notice=None)
        outcome = reconcile(seen)
        # What the annotation of the pods names has to stand in the status before there are any.
        told = is_told_first(outcome.status, before=seen.job.status)
        if told and not await self._tell(seen.job, outcome.status):
            return
        for action in outcome.actions:
            if not await self._act(seen, action):
                # What was decided does not hold any more.
                self.queue.add(key)
                return
        if not told:
            await self._tell(seen.job, outcome.status)
        if outcome.status.preemption != seen.job.status.preemption:
            # What the status says now is what the pods are to say next.
            self.queue.add(key)
        for notice in outcome.notify:
            await notices.notify(self._client, notice.pod, at=notice.at)
        if outcome.wake_at is not None:
            self.queue.add_later(key, seconds=(outcome.wake_at - self._now()).total_seconds())

    def _is_decided(self, seen: Observed) -> bool:
        """Whether number and verdict are there; both come with the queue's next cycle, which makes the job dirty."""
        if seen.job.metadata.deletion_timestamp is not None:
            return True
        if seen.number is None:
            return False
        return bool(seen.verdict or seen.obstacle or not wants_admission(seen.job, seen.child))

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
                self._unsettled.set()
            case DeleteJob():
                assert seen.child is not None, "only a Job that is there is deleted"
                await effects.delete_job(self._client, seen.child)
            case DeleteGPUJob():
                await effects.delete_gpujob(self._client, seen.job)
            case CreateTask():
                return self._took(seen.job, await taskeffects.create(self._client, seen.job, action))
            case ChangeTask():
                return self._took(seen.job, await taskeffects.change(self._client, action))
        return True

    def _took(self, parent: GPUJob, found: GPUJob | Obstacle) -> bool:
        if isinstance(found, Obstacle):
            self._refuse(parent, found)
            return False
        self.job_changed(found)
        return True

    async def _patch(self, child: Job, action: PatchJob) -> bool:
        try:
            self.state.put_child(await effects.patch_job(self._client, child, action))
        except StatusError as error:
            if error.code != _UNPROCESSABLE or "template" not in action.spec:
                raise
            # Before Kubernetes 1.36 a Job that has begun takes no other plan: it is made anew.
            await effects.delete_job(self._client, child)
            return False
        return True

    async def _create(self, seen: Observed, action: CreateJob) -> bool:
        found = await effects.create_job(
            self._client, seen.job, action, term=self._term(), mps_directory=self._mps_directory
        )
        if isinstance(found, Obstacle):
            self._refuse(seen.job, found)
            return False
        self.state.put_child(found)
        if (warning := probes.warning_of(seen.job, seen.ask)) is not None:
            self._post(warning)
        self._count_admission(seen.job)
        # Its room is claimed as on the way from now on, by the batch Job that is there.
        self._unsettled.set()
        return True

    def _refuse(self, job: GPUJob, obstacle: Obstacle) -> None:
        self.state.refuse(job, obstacle)
        wait = _OBSTACLE_SECONDS.get(obstacle.reason, _OBSTACLE_SECONDS_ELSE)
        asyncio.get_running_loop().call_later(wait, self._relent, job)
        # The room that was kept for it is free again.
        self._unsettled.set()

    def _relent(self, job: GPUJob) -> None:
        self.state.relent(job)
        self.queue.add(key_of(job.metadata))
        self._unsettled.set()

    def _count_admission(self, job: GPUJob) -> None:
        self._counters.admissions.inc()
        waited = (self._now() - moment(job.metadata.creation_timestamp)).total_seconds()
        self._counters.wait_seconds.observe(max(0.0, waited))

    async def _tell(self, job: GPUJob, status: GPUJobStatus) -> bool:
        """Write the status if it is news, and post an event if phase or reason is. False if it could not be written."""
        if not effects.difference(job.status, status):
            return True
        key = key_of(job.metadata)
        try:
            written = await effects.write_status(self._client, job, status)
        except NotFound:
            self.job_gone(job)
            return False
        except Conflict:
            await self._reread(job)
            self.queue.add(key)
            return False
        self.state.put_job(written)
        if status.phase != job.status.phase:
            self._wake_dependents(key)
        for told in (announcement_of(job, status), overuse.announcement_of(job, status)):
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
            self.job_gone(job)
        else:
            self.state.put_job(found)

    async def _reread_child(self, child: Job) -> None:
        meta = child.metadata
        try:
            found = await self._client.get(JOBS, meta.name, as_type=Job, namespace=meta.namespace)
        except NotFound:
            self.state.child_changed("DELETED", child)
        else:
            self.state.put_child(found)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    _log_failure("job is tried again", error, wait, job=key)


def _log_failure(event: str, error: Exception, wait: float, **what: str) -> None:
    # What the API server says is one line; anything else is a fault of ours and needs its trace.
    trace = None if isinstance(error, KubeError) else error
    log.warning(event, error=str(error), wait_seconds=round(wait, 1), exc_info=trace, **what)
