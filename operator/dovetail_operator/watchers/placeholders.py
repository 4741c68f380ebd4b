"""Keeps the batch Job of placeholder pods of each GPUJob that requested new nodes, and removes it afterwards.

What is wanted follows from `status.provisioning` alone: a new operator continues where the one before it ended.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import EventType, key_of
from dovetail.api.resources import JOBS, PODS
from dovetail.engine.model.claims import Ask
from dovetail.formats.durations import moment, timestamp
from dovetail.jobs.batch_job import is_going, is_managed
from dovetail.jobs.owner_reference import controlling_gpujob, is_owned
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import Backoff
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail.pods.demand import template_spec
from dovetail.queue.growing.pools import GrowingPool
from dovetail.queue.limits.quotas import spec_in_pools
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests import placeholder
from dovetail_operator.state.state import State
from dovetail_operator.writes import services

_HANDS: Final = 4
_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
# A refused Job is tried again after this time: a quota of the namespace may have room then.
_REFUSED_SECONDS: Final = 60.0


class PlaceholderKeeper:
    """Follows the placeholders of all GPUJobs. It is a follower of the store, and runs once the state is complete."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
        rng: random.Random,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._client = client
        self._state = state
        self._post = post
        self._now = now
        self._rng = rng
        self._backoff = backoff
        # The keys of GPUJobs, and those of placeholder pods.
        self._queue = WorkQueue()
        self._unmarked = WorkQueue()
        self._jobs = Reflector(
            client, resource=JOBS, as_type=Job, on_event=self._on_job, label_selector=names.LABEL_PLACEHOLDER
        )
        self._pods = Reflector(
            client, resource=PODS, as_type=Pod, on_event=self._on_pod, label_selector=names.LABEL_PLACEHOLDER
        )
        # By the GPUJob's key, the batch Jobs of its placeholders by name.
        self._by_job: dict[str, dict[str, Job]] = {}
        # GPUJobs whose owners have received the event that placeholders are refused.
        self._told: set[str] = set()
        state.store.follow(self)

    async def run(self) -> None:
        """Keep the placeholders until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._jobs.run())
            tasks.create_task(self._pods.run())
            await self._jobs.synced.wait()
            for key, job in self._state.store.jobs.items():
                if job.status.provisioning is not None:
                    self._queue.add(key)
            for queue, handle in ((self._queue, self._keep), (self._unmarked, self._mark)):
                serving = queue.serve(handle, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=self._backoff)
                tasks.create_task(serving)

    def observe(self, job: GPUJob) -> None:
        """Check the placeholders of a job with a request, or of one that had one."""
        key = key_of(job.metadata)
        if job.status.provisioning is not None or key in self._by_job:
            self._queue.add(key)

    def drop(self, job: GPUJob) -> None:
        """Forget a deleted job. The garbage collector deletes its placeholders."""
        self._told.discard(key_of(job.metadata))

    def _on_job(self, type_: EventType, child: Job) -> None:
        owner = controlling_gpujob(child.metadata)
        if owner is None:
            return
        key = f"{child.metadata.namespace}/{owner.name}"
        known = self._by_job.setdefault(key, {})
        if type_ == "DELETED":
            known.pop(child.metadata.name, None)
        else:
            known[child.metadata.name] = child
        if not known:
            del self._by_job[key]
        self._queue.add(key)

    def _on_pod(self, type_: EventType, pod: Pod) -> None:
        if type_ != "DELETED" and _is_unmarked(pod):
            self._unmarked.add(key_of(pod.metadata))

    async def _keep(self, key: str) -> None:
        job, there = self._state.store.jobs.get(key), dict(self._by_job.get(key, {}))
        wanted = None if job is None else self._wanted(job)
        name = None if wanted is None else wanted["metadata"]["name"]
        for child in there.values():
            if job is None or child.metadata.name != name or not is_owned(child.metadata, by=job):
                await self._delete(child)
        if job is None or wanted is None:
            return
        made = there.get(wanted["metadata"]["name"])
        if made is None:
            await self._create(job, manifest=wanted)
        elif made.spec.parallelism != (workers := wanted["spec"]["parallelism"]):
            await self._resize(made, workers=workers)

    def _wanted(self, job: GPUJob) -> dict[str, Any] | None:
        request = job.status.provisioning
        if request is None or is_finished(job) or is_going(job) or not is_managed(job):
            return None
        pool = next((each for each in self._state.growing.rules.pools if each.name == request.pool), None)
        ask = None if pool is None else self._ask_on(pool, job=job)
        if pool is None or ask is None:
            return None
        spec = spec_in_pools(template_spec(job), pools=self._state.store.quotas.pools_of(job))
        besides = self._earlier_hosts(pool, since=moment(request.requested_time))
        return placeholder.placeholder_job(job, ask=ask, pool=pool, spec=spec, besides=besides)

    def _ask_on(self, pool: GrowingPool, *, job: GPUJob) -> Ask | None:
        ways = self._state.requests.ways_of(job)
        return next((ask for ask in ways if ask.resource == pool.resource), None)

    def _earlier_hosts(self, pool: GrowingPool, *, since: datetime) -> list[str]:
        """The host names of the pool's nodes that existed before the request."""
        earlier = (
            node
            for node in self._state.store.view.nodes.values()
            if pool.has(node) and not pool.came_since(node, time=since)
        )
        return [node.metadata.labels.get(placeholder.HOSTNAME, node.metadata.name) for node in earlier]

    async def _create(self, job: GPUJob, *, manifest: dict[str, Any]) -> None:
        """Create the batch Job. If the API server refuses it, an event says so once, and it is tried again later."""
        key = key_of(job.metadata)
        try:
            await self._client.create(JOBS, body=manifest, as_type=Job, namespace=job.metadata.namespace)
        except AlreadyExists:
            # The watch brings it.
            return
        except StatusError as error:
            obstacle = services.refusal(error, kind="Job of placeholders")
            if key not in self._told:
                self._told.add(key)
                about = job.metadata
                self._post(
                    Announcement(about=about, severity="Warning", reason="Provisioning", message=obstacle.message)
                )
            self._queue.add_later(key, seconds=_REFUSED_SECONDS)
            return
        self._told.discard(key)

    async def _resize(self, child: Job, *, workers: int) -> None:
        meta = child.metadata
        patch = {"metadata": {"uid": meta.uid}, "spec": {"parallelism": workers}}
        try:
            await self._client.patch(JOBS, name=meta.name, patch=patch, as_type=Job, namespace=meta.namespace)
        except (NotFound, Conflict):
            return

    async def _delete(self, child: Job) -> None:
        meta = child.metadata
        try:
            await self._client.delete(JOBS, name=meta.name, namespace=meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return

    async def _mark(self, key: str) -> None:
        """Let autoscalers see that no node takes the pod: no scheduler does."""
        pod = self._pods.store.get(key)
        if pod is None or not _is_unmarked(pod):
            return
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": placeholder.unschedulable(at=timestamp(self._now()))}
        try:
            await self._client.patch(
                PODS, name=meta.name, patch=patch, as_type=Pod, namespace=meta.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            return


def _is_unmarked(pod: Pod) -> bool:
    """Whether it is a placeholder that lives and has no condition yet. A label alone proves nothing."""
    ours = pod.spec.scheduler_name == names.PLACEHOLDER_SCHEDULER
    return ours and pod.metadata.deletion_timestamp is None and not pod.status.conditions


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log_failure("placeholders are tried again", error=error, wait=wait, job=key)
