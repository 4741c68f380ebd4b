"""Keeps the batch Job of placeholder pods of each GPUJob that requested new nodes, and removes it afterwards.

A module of its own: one of the watchers that `build` lists, and one of two kinds of `RequestKeeper`.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType, key_of
from dovetail.api.resources import JOBS, PODS
from dovetail.formats.durations import timestamp
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import Backoff
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests import placeholder
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_requests import (
    BACKOFF,
    HANDS,
    Manifest,
    RequestKeeper,
    node_request_of,
)


class PlaceholderKeeper(RequestKeeper[Job]):
    """Follows the placeholders of all GPUJobs. It is a follower of the store, and runs once the state is complete."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
        rng: random.Random,
        backoff: Backoff = BACKOFF,
    ) -> None:
        super().__init__(
            client,
            resource=JOBS,
            as_type=Job,
            state=state,
            post=post,
            rng=rng,
            backoff=backoff,
            what="Job of placeholders",
        )
        self._now = now
        # The keys of placeholder pods.
        self._unmarked = WorkQueue()
        self._jobs = Reflector(
            client, resource=JOBS, as_type=Job, on_event=self._on_object, label_selector=names.LABEL_PLACEHOLDER
        )
        self._pods = Reflector(
            client, resource=PODS, as_type=Pod, on_event=self._on_pod, label_selector=names.LABEL_PLACEHOLDER
        )

    async def run(self) -> None:
        """Keep the placeholders until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._jobs.run())
            tasks.create_task(self._pods.run())
            await self._jobs.synced.wait()
            tasks.create_task(self._serve())
            marking = self._unmarked.serve(
                self._mark, hands=HANDS, failed=self._tried_again, rng=self._rng, backoff=self._backoff
            )
            tasks.create_task(marking)

    def _on_pod(self, type_: EventType, pod: Pod) -> None:
        if type_ != "DELETED" and _is_unmarked(pod):
            self._unmarked.add(key_of(pod.metadata))

    def _wanted(self, job: GPUJob) -> Manifest | None:
        wanted = node_request_of(job, state=self._state)
        if wanted is None or wanted.pool.provisioning_class:
            return None
        return placeholder.placeholder_job(
            job, ask=wanted.ask, pool=wanted.pool, spec=wanted.spec, besides=wanted.besides
        )

    async def _complete(self, made: Job, *, job: GPUJob) -> None:
        """Let the batch Job have as many placeholders as the job needs now."""
        request, meta = job.status.provisioning, made.metadata
        if request is None or made.spec.parallelism == request.workers:
            return
        patch = {"metadata": {"uid": meta.uid}, "spec": {"parallelism": request.workers}}
        try:
            await self._client.patch(JOBS, name=meta.name, patch=patch, as_type=Job, namespace=meta.namespace)
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
