"""Runs the actions that a reconcile decides on: batch Jobs, tasks and deletions."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.formats.durations import timestamp
from dovetail.formats.timestamps import moment
from dovetail.gpu.device_plugins import Delivery
from dovetail.jobs.batch_job import ends_by_eviction, is_guests, is_parent
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, StatusError
from dovetail.pods.disruption_budgets import refusing_budget
from dovetail_operator.controller.event_handlers import Changes
from dovetail_operator.events.announcement import Announcement
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
from dovetail_operator.metrics import Counters
from dovetail_operator.queue.loop import SchedulingLoop
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.state.store import Store
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from dovetail_operator.writes import jobs, pods, tasks

_UNPROCESSABLE: Final = 422


class ActionRunner:
    """Runs actions for one job at a time; several jobs may be in progress at once.

    `term` is our fencing token as leader, None without leader election. `mps_directory` is where pods find MPS on their
    node, empty if they use none; `delivery` is how their containers get devices.
    """

    def __init__(
        self,
        client: Client,
        *,
        store: Store,
        changes: Changes,
        scheduling: SchedulingLoop,
        pending: PendingWrites,
        counters: Counters,
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
        term: Callable[[], int | None],
        mps_directory: str,
        guests: GuestKeeper,
        delivery: Delivery,
    ) -> None:
        self._client = client
        self._guests = guests
        self._store = store
        self._changes = changes
        self._scheduling = scheduling
        self._pending = pending
        self._counters = counters
        self._post = post
        self._now = now
        self._term = term
        self._mps_directory = mps_directory
        self._delivery: Delivery = delivery

    async def run(self, seen: Observed, *, actions: Sequence[Action]) -> bool:
        """Run the actions in order, those of an array in parallel. False once one cannot be done.

        Raises `DisruptionRefusedError`.
        """
        if is_parent(seen.job):
            found = await asyncio.gather(
                *(self._run_one(seen, action=action) for action in actions), return_exceptions=True
            )
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            return all(found)
        for action in actions:
            if not await self._run_one(seen, action=action):
                return False
        return True

    async def _run_one(self, seen: Observed, *, action: Action) -> bool:
        try:
            return await self._dispatch(seen, action=action)
        except Conflict:
            self._await_news(seen, action=action)
            return False

    def _await_news(self, seen: Observed, *, action: Action) -> None:
        """Let the job's next reconcile wait for the newest version of the object that has changed."""
        key = key_of(seen.job.metadata)
        match action:
            case PatchJob() | DeleteJob() if seen.child is not None:
                self._pending.await_newer_child(key, child=seen.child, store=self._store)
            case ChangeTask():
                self._pending.await_newer_job(key, job=action.task, store=self._store)
            case _:
                self._pending.await_newer_job(key, job=seen.job, store=self._store)

    async def _disrupt(self, seen: Observed) -> None:
        """Count the end of the job's pods in their PodDisruptionBudgets. Raises `DisruptionRefusedError`."""
        budgets = self._store.budgets_of(seen.job.metadata.namespace)
        if ends_by_eviction(seen.job):
            # Counted twice, the budget would refuse the eviction. A group must not end in part.
            if refusing := refusing_budget(seen.pods, budgets=budgets):
                raise pods.DisruptionRefusedError(refusing)
            return
        await pods.record_disruption(self._client, pods=seen.pods, budgets=budgets, at=timestamp(self._now()))

    async def _dispatch(self, seen: Observed, *, action: Action) -> bool:
        if isinstance(action, PatchJob | DeleteJob) and action.disrupts:
            await self._disrupt(seen)
        match action:
            case CreateJob() | PatchJob() | DeleteJob() if is_guests(seen.job):
                return await self._hold_guest(seen.job, action=action)
            case CreateJob():
                return await self._create(seen, action=action)
            case PatchJob():
                assert seen.child is not None, "only an existing batch Job is patched"
                return await self._patch(seen.job, child=seen.child, action=action)
            case DeleteJob():
                assert seen.child is not None, "only an existing batch Job is deleted"
                await jobs.delete_job(self._client, child=seen.child)
            case JoinQueue():
                self._wrote(seen.job, found=await jobs.join_queue(self._client, job=seen.job, queue=action.queue))
            case DeleteGPUJob():
                await jobs.delete_gpujob(self._client, job=seen.job)
            case CreateTask():
                return self._wrote(seen.job, found=await tasks.create(self._client, parent=seen.job, action=action))
            case ChangeTask():
                return self._wrote(seen.job, found=await tasks.change(self._client, action=action))
        return True

    def _wrote(self, job: GPUJob, *, found: GPUJob | Obstacle) -> bool:
        if isinstance(found, Obstacle):
            self._changes.refuse(job, obstacle=found)
            return False
        self._pending.await_job(key_of(job.metadata), written=found, store=self._store)
        return True

    async def _patch(self, job: GPUJob, *, child: Job, action: PatchJob) -> bool:
        try:
            written = await jobs.patch_job(self._client, child=child, action=action)
        except StatusError as error:
            if error.code != _UNPROCESSABLE or "template" not in action.spec:
                raise
            # Before Kubernetes 1.36 a batch Job that has started accepts no other template, so a new one replaces it.
            await jobs.delete_job(self._client, child=child)
            return False
        self._pending.await_child(key_of(job.metadata), written=written, store=self._store)
        if action.spec.get("suspend") is False:
            self._count_admission(job)
        self._scheduling.room_changed()
        return True

    async def _hold_guest(self, record: GPUJob, *, action: CreateJob | PatchJob | DeleteJob) -> bool:
        """Let a guest go, or hold it: its pods end then, and its own controller makes them again later."""
        lets_go = isinstance(action, PatchJob) and action.spec.get("suspend") is False
        written = await self._guests.hold(record, suspend=not lets_go)
        if written is None:
            return True
        self._pending.await_child(key_of(record.metadata), written=written, store=self._store)
        if lets_go:
            self._count_admission(record)
        self._scheduling.room_changed()
        return True

    async def _create(self, seen: Observed, *, action: CreateJob) -> bool:
        found = await jobs.create_job(
            self._client,
            job=seen.job,
            action=action,
            term=self._term(),
            mps_directory=self._mps_directory,
            delivery=self._delivery,
        )
        if isinstance(found, Obstacle):
            self._changes.refuse(seen.job, obstacle=found)
            return False
        # Until the watch brings the batch Job, the verdict holds its room.
        self._pending.await_child(key_of(seen.job.metadata), written=found, store=self._store)
        if (warning := liveness_warning.warning_of(seen.job, ask=seen.ask)) is not None:
            self._post(warning)
        if not action.manifest["spec"].get("suspend"):
            self._count_admission(seen.job)
        self._scheduling.room_changed()
        return True

    def _count_admission(self, job: GPUJob) -> None:
        self._changes.state.decisions.note_start(self._now())
        self._counters.admissions.inc()
        waited = (self._now() - moment(job.metadata.creation_timestamp)).total_seconds()
        self._counters.wait_seconds.observe(max(0.0, waited))
