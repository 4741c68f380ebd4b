"""Keeps a placeholder pod for each worker whose job requested new nodes, and removes it afterwards.

What is wanted follows from `status.provisioning` alone: a new operator continues where the one before it ended.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import EventType, key_of
from dovetail.api.resources import PODS
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
# A refused pod is tried again after this time: a quota of the namespace may have room then.
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
        self._queue = WorkQueue()
        self._pods = Reflector(
            client, resource=PODS, as_type=Pod, on_event=self._on_event, label_selector=names.LABEL_PLACEHOLDER
        )
        # By the job's key, its placeholders by name.
        self._by_job: dict[str, dict[str, Pod]] = {}
        # Jobs whose owners have received the event that a placeholder is refused.
        self._told: set[str] = set()
        state.store.follow(self)

    async def run(self) -> None:
        """Keep the placeholders until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            await self._pods.synced.wait()
            for key, job in self._state.store.jobs.items():
                if job.status.provisioning is not None:
                    self._queue.add(key)
            tasks.create_task(
                self._queue.serve(self._keep, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=self._backoff)
            )

    def observe(self, job: GPUJob) -> None:
        """Check the placeholders of a job with a request, or of one that had one."""
        key = key_of(job.metadata)
        if job.status.provisioning is not None or key in self._by_job:
            self._queue.add(key)

    def drop(self, job: GPUJob) -> None:
        """Forget a deleted job. The garbage collector deletes its placeholders."""
        self._told.discard(key_of(job.metadata))

    def _on_event(self, type_: EventType, pod: Pod) -> None:
        owner = controlling_gpujob(pod.metadata)
        if owner is None:
            return
        key = f"{pod.metadata.namespace}/{owner.name}"
        known = self._by_job.setdefault(key, {})
        if type_ == "DELETED":
            known.pop(pod.metadata.name, None)
        else:
            known[pod.metadata.name] = pod
        if not known:
            del self._by_job[key]
        self._queue.add(key)

    async def _keep(self, key: str) -> None:
        job, there = self._state.store.jobs.get(key), dict(self._by_job.get(key, {}))
        wanted = {} if job is None else self._wanted(job)
        for name, pod in there.items():
            if job is None or name not in wanted or not is_owned(pod.metadata, by=job):
                await self._delete(pod)
            elif not pod.status.conditions:
                await self._mark(pod)
        missing = [manifest for name, manifest in wanted.items() if name not in there]
        if job is not None and not await self._create_all(job, manifests=missing):
            self._queue.add_later(key, seconds=_REFUSED_SECONDS)

    def _wanted(self, job: GPUJob) -> dict[str, dict[str, Any]]:
        request = job.status.provisioning
        if request is None or is_finished(job) or is_going(job) or not is_managed(job):
            return {}
        pool = next((each for each in self._state.growing.rules.pools if each.name == request.pool), None)
        ask = None if pool is None else self._ask_on(pool, job=job)
        if pool is None or ask is None:
            return {}
        spec = spec_in_pools(template_spec(job), pools=self._state.store.quotas.pools_of(job))
        besides = self._earlier_hosts(pool, since=moment(request.requested_time))
        return placeholder.placeholders_of(job, ask=ask, pool=pool, spec=spec, besides=besides)

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

    async def _create_all(self, job: GPUJob, *, manifests: Iterable[dict[str, Any]]) -> bool:
        """Create the placeholders, up to the first that is refused. False if one is."""
        for manifest in manifests:
            if not await self._create(job, manifest=manifest):
                return False
        return True

    async def _create(self, job: GPUJob, *, manifest: dict[str, Any]) -> bool:
        """Create a placeholder. False if the API server refuses it; an event says so once."""
        key = key_of(job.metadata)
        try:
            made = await self._client.create(PODS, body=manifest, as_type=Pod, namespace=job.metadata.namespace)
        except AlreadyExists:
            # The watch brings it.
            return True
        except StatusError as error:
            obstacle = services.refusal(error, kind="placeholder pod")
            if key not in self._told:
                self._told.add(key)
                about = job.metadata
                self._post(
                    Announcement(about=about, severity="Warning", reason="Provisioning", message=obstacle.message)
                )
            return False
        self._told.discard(key)
        await self._mark(made)
        return True

    async def _mark(self, pod: Pod) -> None:
        """Let autoscalers see that no node takes the pod: no scheduler does."""
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": placeholder.unschedulable(at=timestamp(self._now()))}
        try:
            await self._client.patch(
                PODS, name=meta.name, patch=patch, as_type=Pod, namespace=meta.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            return

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                PODS, name=meta.name, namespace=meta.namespace, uid=meta.uid, grace_period_seconds=0
            )
        except (NotFound, Conflict):
            return


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log_failure("placeholders are tried again", error=error, wait=wait, job=key)
