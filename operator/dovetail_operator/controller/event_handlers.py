"""Handlers of watch events: update the store, and mark the affected jobs and the queue.

Between its admission and its start, a job passes through states that follow each other within milliseconds: the batch
Job appears, its pod appears, is bound, runs. A reconcile for each of them would find nothing that is worth a write
(`job.status_pacing`). Such events therefore wait for what follows, and share its reconcile.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.builtin import Event, Job, Node, Pod, ResourceSlice
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType, ObjectMeta, key_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.arrays.task_index import parent_key
from dovetail_operator.controller.room_changes import is_same_node, is_sign_of_life
from dovetail_operator.job.status_pacing import PASSING_SECONDS, Pacing
from dovetail_operator.queue.loop import SchedulingLoop
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.state.refused_pods import jobs_that_lack
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import departed
from dovetail_operator.writes.evictions import PodEvictions

_OBSTACLE_SECONDS: Final = {"Evaluating": 1.0}
_OBSTACLE_SECONDS_ELSE: Final = 30.0


class Changes:
    """Pass every event to this: it updates the state, `queue` and `scheduling`."""

    def __init__(
        self,
        state: State,
        *,
        queue: WorkQueue,
        scheduling: SchedulingLoop,
        evictions: PodEvictions,
        pacing: Pacing,
        pending: PendingWrites,
        now: Callable[[], datetime],
    ) -> None:
        self.state = state
        self._queue = queue
        self._scheduling = scheduling
        self._evictions = evictions
        self._pacing = pacing
        self._pending = pending
        self._now = now

    def job_event(self, type_: EventType, job: GPUJob) -> None:
        """Handle an event of a GPUJob."""
        if type_ == "DELETED":
            self.job_gone(job)
        else:
            self.job_changed(job)

    def job_changed(self, job: GPUJob) -> None:
        """Handle an observed version of a GPUJob."""
        key = key_of(job.metadata)
        known = self.state.store.jobs.get(key)
        is_new = self.state.store.job_changed(job)
        arrival = self._pending.observed("GPUJob", meta=job.metadata)
        for owner in arrival.resumed:
            self._queue.add(owner)
        if not is_new:
            return
        if known is not None and (arrival.is_own_status or self._is_own_write(job, before=known)):
            # The status has what the operator decided: only other jobs may have to react.
            if known.status.phase != job.status.phase:
                self.wake_dependents(key)
            return
        if self.state.is_known_to_queue(job):
            self._queue.add(key)
        self.wake_dependents(key)
        if known is None or _is_edited(job, before=known):
            self._scheduling.jobs_changed()
        else:
            self._scheduling.room_changed()

    def _is_own_write(self, job: GPUJob, *, before: GPUJob) -> bool:
        """Whether the event brings a status whose write has no answer yet, and nothing else."""
        is_ours = self._pending.is_being_sent(key_of(job.metadata), status=job.status)
        return is_ours and not _is_edited(job, before=before)

    def job_gone(self, job: GPUJob) -> None:
        """Handle the deletion of a GPUJob."""
        key = key_of(job.metadata)
        if used := departed(self.state, job=job, now=self._now()):
            self.state.store.quotas.departed(used)
        self.state.store.job_deleted(key, uid=job.metadata.uid)
        for owner in self._pending.observed("GPUJob", meta=job.metadata).resumed:
            self._queue.add(owner)
        self._queue.forget(key)
        self._pacing.forget(job.metadata.uid)
        self._pending.forget(key)
        self._scheduling.jobs_changed()
        self.wake_dependents(key)
        for array in (parent_key(job), self.state.store.tasks.waiting_for(key)):
            if array is not None:
                self._queue.add(array)

    def job_unreadable(self, meta: ObjectMeta, message: str) -> None:
        """Handle a GPUJob whose newest version cannot be read."""
        self.state.store.job_unreadable(meta, message=message)
        self._scheduling.jobs_changed()

    def child_event(self, type_: EventType, child: Job) -> None:
        """Handle an event of a batch Job with our label."""
        before = self.state.store.child_named(key_of(child.metadata))
        key = self.state.store.child_event(type_, child)
        for owner in self._pending.observed("Job", meta=child.metadata).resumed:
            self._queue.add(owner)
        job = self.state.store.jobs.get(key)
        if job is None:
            return
        if type_ == "DELETED":
            # It may have been the obstacle of the job.
            self.state.decisions.retry(job)
            self._scheduling.jobs_changed()
        delay = BURST_SECONDS if type_ == "DELETED" else child_delay_seconds(child, before=before)
        if delay is not None:
            self._reconcile_later(key, seconds=delay)
            self.wake_dependents(key)
            self._scheduling.room_changed()

    def pod_event(self, type_: EventType, pod: Pod) -> None:
        """Handle an event of any pod."""
        pods, held = self.state.store.pods, self._held()
        before = pods.known(pod.metadata.uid)
        key = self.state.store.pod_event(type_, pod)
        if key is not None:
            delay = pod_delay_seconds(type_, pod=pod, before=before, count=pods.count(key))
            if delay is None:
                return
            self._reconcile_later(key, seconds=delay)
        elif type_ == "ADDED" and not pod.spec.node_name:
            # As it is created. A bound pod is of the first list, and what is stored of the mix has it already.
            self.state.count_created(pod)
        elif type_ == "MODIFIED" and pod.spec.node_name and self._held() == held:
            # The status of a plain pod changes all the time.
            return
        self._scheduling.room_changed()

    def _held(self) -> tuple[int, int]:
        """Changes with each claim of a pod, and with what counts against quotas."""
        return self.state.store.view.ledger.changes, self.state.store.quotas.version

    def refusal_event(self, type_: EventType, event: Event) -> None:
        """Handle a controller's event that it cannot create a pod."""
        self.state.store.refused_pods.changed(type_, event=event)
        about = event.involved_object
        if any(f"{about.namespace}/{name}" in self.state.store.jobs for name in jobs_that_lack(about)):
            self._scheduling.jobs_changed()

    def node_event(self, type_: EventType, node: Node) -> None:
        """Handle an event of a Node."""
        view = self.state.store.view
        before = view.nodes.get(node.metadata.name)
        if type_ == "DELETED":
            view.node_gone(node.metadata.name)
        else:
            self.state.store.node_changed(node)
            if is_same_node(node, before=before):
                return
        self._scheduling.room_changed()

    def slice_event(self, type_: EventType, found: ResourceSlice) -> None:
        """Handle an event of a ResourceSlice of a GPU vendor's driver."""
        if type_ == "DELETED":
            self.state.store.view.slice_gone(found)
        else:
            self.state.store.view.slice_changed(found)
        self._scheduling.room_changed()

    def gpunode_event(self, type_: EventType, gpunode: GPUNode) -> None:
        """Handle an event of a GPUNode."""
        name, store = gpunode.metadata.name, self.state.store
        before, ledger = store.gpunode(name), store.view.ledger
        if type_ == "DELETED":
            store.gpunode_deleted(name)
            self._evictions.gone(name)
        else:
            self._evictions.changed(gpunode)
            note = ledger.unmeasured_reason(name)
            for key in store.gpunode_changed(gpunode):
                self._queue.add_later(key, seconds=BURST_SECONDS)
            if is_sign_of_life(gpunode, before=before) and ledger.unmeasured_reason(name) == note:
                return
        self._scheduling.room_changed()

    def quota_event(self, type_: EventType, quota: GPUQuota) -> None:
        """Handle an event of a GPUQuota."""
        if type_ == "DELETED":
            self.state.store.quotas.drop(quota.metadata.name)
        elif not self.state.store.quotas.update(quota):
            return
        self._scheduling.limits_changed()

    def budget_event(self, type_: EventType, budget: PodDisruptionBudget) -> None:
        """Handle an event of a PodDisruptionBudget."""
        self.state.store.budget_event(type_, budget)
        # More may end now for a job that waits, or less.
        self._scheduling.room_changed()

    def time_passes(self) -> None:
        """Apply what time alone changes: old measurements, settled loads, room of unknown pods."""
        opened = self.state.store.view.drivers_pass()
        if self.state.store.view.time_passes() or self.state.store.quotas.keep_for_a_time or opened:
            self._scheduling.room_changed()

    def wake_dependents(self, key: str) -> None:
        """Reconcile the jobs that depend on this one, and its array."""
        job = self.state.store.jobs.get(key)
        if job is not None and (parent := parent_key(job)) is not None:
            self._queue.add(parent)
        for dependent in self.state.store.dependencies.dependents_of(key):
            self._queue.add(dependent)
            self._scheduling.jobs_changed()

    def refuse(self, job: GPUJob, *, obstacle: Obstacle) -> None:
        """Record that a job cannot be started for now, and schedule the next try."""
        self.state.decisions.refuse(job, obstacle=obstacle)
        wait = _OBSTACLE_SECONDS.get(obstacle.reason, _OBSTACLE_SECONDS_ELSE)
        asyncio.get_running_loop().call_later(wait, self._relent, job)
        # The room that was reserved for it is free again.
        self._scheduling.jobs_changed()

    def _reconcile_later(self, key: str, *, seconds: float) -> None:
        """Reconcile a job after an event. A state that passes is written a second after it began, at the latest."""
        job = self.state.store.jobs.get(key)
        if job is not None and is_passing(seconds):
            self._pacing.passing(job.metadata.uid, now=time.monotonic())
        self._queue.add_later(key, seconds=seconds)

    def _relent(self, job: GPUJob) -> None:
        self.state.decisions.retry(job)
        self._queue.add(key_of(job.metadata))
        self._scheduling.jobs_changed()


def _is_edited(job: GPUJob, *, before: GPUJob) -> bool:
    """Whether more than the status has changed.

    Most events only bring back our own status write.
    """
    version = job.metadata.resource_version
    return job.metadata != msgspec.structs.replace(before.metadata, resource_version=version)


# Events of a batch Job and its pods come in bursts: one reconcile covers all of them.
BURST_SECONDS: Final = 0.1
# A reconcile of a gang costs more the larger the gang is, and its pods start one after the other.
_PODS_OF_A_BURST: Final = 64
_LONGEST_BURST_SECONDS: Final = 0.5
_PASSING_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


def child_delay_seconds(child: Job, *, before: Job | None) -> float | None:
    """Seconds until the reconcile after a new version of a batch Job; None if that version changes nothing.

    `before` is the version that was known, if there was one.
    """
    if before is None:
        return PASSING_SECONDS
    if child.spec.suspend or child.spec != before.spec or not _has_same_metadata(child, before=before):
        return BURST_SECONDS
    counted = msgspec.structs.replace(child.status, active=before.status.active, ready=before.status.ready)
    if counted == before.status:
        # The job's pods say the same, and sooner.
        return None
    started = msgspec.structs.replace(counted, start_time=before.status.start_time)
    return PASSING_SECONDS if started == before.status else BURST_SECONDS


def pod_delay_seconds(type_: EventType, *, pod: Pod, before: Pod | None, count: int) -> float | None:
    """Seconds until the reconcile after an event of a job's pod; None if the event changes nothing.

    `before` is the version that was known, if there was one. `count` is the number of the job's pods.
    """
    if type_ == "DELETED":
        return BURST_SECONDS
    if (
        before is not None
        and _has_same_metadata(pod, before=before)
        and (pod.spec, pod.status)
        == (
            before.spec,
            before.status,
        )
    ):
        return None
    if _is_passing(pod):
        return PASSING_SECONDS
    return min(_LONGEST_BURST_SECONDS, BURST_SECONDS * max(1.0, count / _PODS_OF_A_BURST))


def is_passing(delay_seconds: float) -> bool:
    """Whether a delay is that of a state that others soon follow."""
    return delay_seconds >= PASSING_SECONDS


def _is_passing(pod: Pod) -> bool:
    """Whether the pod is on its way: nothing keeps it from being scheduled and started."""
    if pod.status.phase != "Pending" or pod.metadata.deletion_timestamp is not None:
        return False
    if any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions):
        return False
    waits = (each.state.waiting for each in pod.status.container_statuses)
    return all(wait is None or wait.reason in _PASSING_WAITS for wait in waits)


def _has_same_metadata(new: Job | Pod, *, before: Job | Pod) -> bool:
    version = new.metadata.resource_version
    return new.metadata == msgspec.structs.replace(before.metadata, resource_version=version)
