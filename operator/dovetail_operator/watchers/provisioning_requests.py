"""Keeps the ProvisioningRequest of each GPUJob that requests nodes of the cluster autoscaler by one.

A module of its own: one of the watchers that `build` lists; the other kind of `RequestKeeper` is in `placeholders`.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

from dovetail import names
from dovetail.api.autoscaler import ProvisioningRequest
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import Described, EventType, ObjectMeta
from dovetail.api.resources import PODTEMPLATES, PROVISIONINGREQUESTS
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.queries.optional_watch import LOOK_SECONDS, OptionalWatch
from dovetail.kube.retry import Backoff
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.provisioning_request import provisioning_request, template_of_request
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_requests import BACKOFF, Manifest, RequestKeeper, node_request_of


class PodTemplate(Described, frozen=True, kw_only=True):
    """A PodTemplate, of which only the metadata are read."""

    metadata: ObjectMeta = ObjectMeta()


class ProvisioningRequestKeeper(RequestKeeper[ProvisioningRequest]):
    """Follows the ProvisioningRequests of all GPUJobs, and passes the autoscaler's answers to the state.

    It is a follower of the store, and runs once the state is complete. Where the kind is not installed, the API server
    refuses the requests, and the jobs' owners get an event that says so.
    """

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        post: Callable[[Announcement], None],
        rng: random.Random,
        backoff: Backoff = BACKOFF,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__(
            client,
            resource=PROVISIONINGREQUESTS,
            as_type=ProvisioningRequest,
            state=state,
            post=post,
            rng=rng,
            backoff=backoff,
            what="ProvisioningRequest",
        )
        # The UIDs of the requests whose PodTemplate exists.
        self._with_template: set[str] = set()
        self._watch = OptionalWatch(
            client,
            resource=PROVISIONINGREQUESTS,
            as_type=ProvisioningRequest,
            on_event=self._on_request,
            label_selector=names.LABEL_PLACEHOLDER,
            look_seconds=look_seconds,
        )

    async def run(self) -> None:
        """Keep the requests until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            await self._watch.settled.wait()
            tasks.create_task(self._serve())

    def _on_request(self, type_: EventType, found: ProvisioningRequest) -> None:
        if type_ == "DELETED":
            self._with_template.discard(found.metadata.uid)
        self._state.growing.provisioning_request_event(type_, found)
        self._on_object(type_, found)

    def _wanted(self, job: GPUJob) -> Manifest | None:
        wanted = node_request_of(job, state=self._state)
        if wanted is None or not wanted.pool.provisioning_class:
            return None
        return provisioning_request(job, pool=wanted.pool)

    async def _complete(self, made: ProvisioningRequest, *, job: GPUJob) -> None:
        """Create the PodTemplate that the request names: the autoscaler waits for it."""
        self._watch.look_now()
        request = node_request_of(job, state=self._state)
        if made.metadata.uid in self._with_template or request is None:
            return
        body = template_of_request(
            made, job=job, ask=request.ask, pool=request.pool, spec=request.spec, besides=request.besides
        )
        with contextlib.suppress(AlreadyExists):
            await self._client.create(PODTEMPLATES, body=body, as_type=PodTemplate, namespace=made.metadata.namespace)
        self._with_template.add(made.metadata.uid)
