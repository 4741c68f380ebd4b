"""What a GPUJob requests of its growing pool, and the objects that request it, kept alike for both kinds of object.

What is wanted follows from `status.provisioning` alone: a new operator continues where the one before it ended.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from dovetail import names
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import EventType, key_of
from dovetail.api.reasons.events import NODES_REFUSED
from dovetail.api.resources import Resource
from dovetail.engine.model.claims import Ask
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import controlling_gpujob, is_going, is_managed, is_owned
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from dovetail.kube.reflector import KubeObject
from dovetail.kube.retry import Backoff
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail.pods.demand import template_spec
from dovetail.queue.growing.pools import GrowingPool
from dovetail.queue.limits.quotas import spec_in_pools
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.placeholder import HOSTNAME
from dovetail_operator.state.state import State
from dovetail_operator.writes import services

HANDS: Final = 4
BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
# A refused object is tried again after this time: a quota of the namespace may have room then.
_REFUSED_SECONDS: Final = 60.0
Manifest = dict[str, Any]
T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """A GPUJob's request for nodes.

    - `pool`: the growing pool
    - `ask`: what each worker requests of a node of it
    - `spec`: the job's pod spec with its quota pools
    - `besides`: the host names of the pool's nodes that existed before the request
    """

    pool: GrowingPool
    ask: Ask
    spec: Mapping[str, Any]
    besides: Sequence[str]


def node_request_of(job: GPUJob, *, state: State) -> NodeRequest | None:
    """The nodes that a job requests; None without a request, or if its pool is no longer there."""
    request = job.status.provisioning
    if request is None or is_finished(job) or is_going(job) or not is_managed(job):
        return None
    pool = next((each for each in state.growing.rules.pools if each.name == request.pool), None)
    if pool is None:
        return None
    ask = next((each for each in state.requests.ways_of(job) if each.resource == pool.resource), None)
    if ask is None:
        return None
    return NodeRequest(
        pool=pool,
        ask=ask,
        spec=spec_in_pools(template_spec(job), pools=state.store.quotas.pools_of(job)),
        besides=_earlier_hosts(pool, state=state, since=moment(request.requested_time)),
    )


def _earlier_hosts(pool: GrowingPool, *, state: State, since: datetime) -> list[str]:
    earlier = (
        node for node in state.store.view.nodes.values() if pool.has(node) and not pool.came_since(node, time=since)
    )
    return [node.metadata.labels.get(HOSTNAME, node.metadata.name) for node in earlier]


class RequestKeeper(ABC, Generic[T]):
    """Keeps one object for each GPUJob that requests nodes, and removes it afterwards. A follower of the store.

    The concrete class says which object a job needs (`_wanted`) and follows those that exist (`_on_object`).
    """

    def __init__(
        self,
        client: Client,
        *,
        resource: Resource,
        as_type: type[T],
        state: State,
        post: Callable[[Announcement], None],
        rng: random.Random,
        backoff: Backoff,
        what: str,
    ) -> None:
        """`what` is the object's name in messages."""
        self._client = client
        self._resource = resource
        self._as_type = as_type
        self._state = state
        self._post = post
        self._rng = rng
        self._backoff = backoff
        self._what = what
        # The keys of GPUJobs.
        self._queue = WorkQueue()
        # By the GPUJob's key, its objects by name.
        self._by_job: dict[str, dict[str, T]] = {}
        # GPUJobs whose owners have received the event that the API server refuses an object.
        self._announced: set[str] = set()
        state.store.follow(self)

    @abstractmethod
    def _wanted(self, job: GPUJob) -> Manifest | None:
        """The object that the job needs; None if it needs none."""

    @abstractmethod
    async def _complete(self, made: T, *, job: GPUJob) -> None:
        """Do what remains for an object that exists and that the job needs."""

    def observe(self, job: GPUJob) -> None:
        """Check the objects of a job with a request, or of one that had one."""
        key = key_of(job.metadata)
        if job.status.provisioning is not None or key in self._by_job:
            self._queue.add(key)

    def drop(self, job: GPUJob) -> None:
        """Forget a deleted job. The garbage collector deletes its objects."""
        self._announced.discard(key_of(job.metadata))

    async def _serve(self) -> None:
        """Keep the objects until cancelled, once those that exist are listed."""
        for key, job in self._state.store.jobs.items():
            if job.status.provisioning is not None:
                self._queue.add(key)
        await self._queue.serve(self._keep, hands=HANDS, failed=self._tried_again, rng=self._rng, backoff=self._backoff)

    def _on_object(self, type_: EventType, found: T) -> None:
        owner = controlling_gpujob(found.metadata)
        # The selector says so too, but a GPUJob's own batch Job must survive an API server that ignores selectors.
        if owner is None or names.LABEL_PLACEHOLDER not in found.metadata.labels:
            return
        key = f"{found.metadata.namespace}/{owner.name}"
        known = self._by_job.setdefault(key, {})
        if type_ == "DELETED":
            known.pop(found.metadata.name, None)
        else:
            known[found.metadata.name] = found
        if not known:
            del self._by_job[key]
        self._queue.add(key)

    async def _keep(self, key: str) -> None:
        job, there = self._state.store.jobs.get(key), dict(self._by_job.get(key, {}))
        wanted = None if job is None else self._wanted(job)
        name = None if wanted is None else wanted["metadata"]["name"]
        for each in there.values():
            if job is None or each.metadata.name != name or not is_owned(each.metadata, by=job):
                await self._delete(each)
        if job is None or wanted is None:
            return
        try:
            made = there.get(wanted["metadata"]["name"])
            if made is None:
                made = await self._created(job, manifest=wanted)
            if made is not None:
                await self._complete(made, job=job)
        except StatusError as error:
            self._refused(key, job=job, error=error)
            return
        self._announced.discard(key)

    async def _created(self, job: GPUJob, *, manifest: Manifest) -> T | None:
        namespace = job.metadata.namespace
        try:
            return await self._client.create(self._resource, body=manifest, as_type=self._as_type, namespace=namespace)
        except AlreadyExists:
            # The watch brings it.
            return None

    def _refused(self, key: str, *, job: GPUJob, error: StatusError) -> None:
        """Say once that the API server refuses an object, and try again later."""
        obstacle = services.refusal(error, kind=self._what)
        if key not in self._announced:
            self._announced.add(key)
            self._post(Announcement(about=job.metadata, severity="Warning", why=NODES_REFUSED(why=obstacle.message)))
        self._queue.add_later(key, seconds=_REFUSED_SECONDS)

    async def _delete(self, found: T) -> None:
        meta = found.metadata
        try:
            await self._client.delete(self._resource, name=meta.name, namespace=meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return

    def _tried_again(self, key: str, error: Exception, wait: float) -> None:
        """Log a failure after which the request of a job is tried again."""
        log_failure(f"a {self._what} is tried again", error=error, wait=wait, job=key)
