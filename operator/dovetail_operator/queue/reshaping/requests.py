"""Carries out the queue's changes of GPUs with their node's agent, by `GPUNode.spec.reshape`.

1. The operator writes the request. From then on the GPU's instances count as cordoned for operator and extender, and
   the extender reads the GPUNode before each bind that takes an instance.
2. After every bind that began before the request must have been sent, the operator lists the node's pods. If one has an
   instance of the GPU, it takes the request back; if none has, it writes `drained`.
3. The agent partitions the GPU and reports `answered`. The operator removes the entry, and the GPU takes work again.

All state is in the GPUNode: a new operator continues at the step that it finds. Once a request is drained, only the
agent's answer ends it, because the agent may be at work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, Reshape
from dovetail.api.meta import find_condition
from dovetail.api.reasons import events as says
from dovetail.api.reasons.clause import Sentence
from dovetail.api.resources import GPUNODES, PODS
from dovetail.formats.durations import timestamp
from dovetail.gpu.geometry import described
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.logs import get_logger
from dovetail.pods.allocation import AllocationError, allocation_in
from dovetail.process.guarded_loops import Guard, repeat
from dovetail.queue.reshaping.cards import Card
from dovetail.queue.reshaping.decision import Change
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.state.state import State

log = get_logger("dovetail.operator.reshaper")

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drain:
    """A request that this process has seen, and when it saw it first, by a monotonic clock."""

    requested_time: str
    since: float


class Reshaper:
    """Moves each request to its next step. `drain_seconds` is how long a bind can be on its way.

    `changed` gets the key of each job that a step has news for.
    """

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        drain_seconds: float,
        changed: Callable[[str], None],
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._state = state
        self._drain_seconds = drain_seconds
        self._changed = changed
        self._post = post
        self._now = now
        self._clock = clock
        self._drains: dict[str, _Drain] = {}
        self._guard = Guard("reshaping")

    async def run(self) -> None:
        """Check repeatedly until cancelled."""
        await repeat(self.check, every_seconds=_LOOK_SECONDS, what="reshaping")

    async def check(self) -> None:
        """Take the next step of each request, and begin the changes that the queue has decided on.

        Reads only the GPUNodes with requests, so that a cluster without any pays nothing.
        """
        reshaped = self._state.store.reshaped
        for change in self._state.decisions.reshapes:
            with self._guard.around(change.card.uuid):
                await self._begin(change)
        if self._drains:
            requested = {uuid for gpunode in reshaped.values() for uuid in gpunode.spec.reshape}
            self._drains = {uuid: drain for uuid, drain in self._drains.items() if uuid in requested}
        for gpunode in list(reshaped.values()):
            for uuid, request in gpunode.spec.reshape.items():
                with self._guard.around(uuid):
                    await self._step(gpunode, uuid=uuid, request=request)

    async def _begin(self, change: Change) -> None:
        """Write the request, unless the GPU has one or is not what the queue has seen."""
        gpunode, card = self._state.store.gpunode(change.card.node), change.card
        if gpunode is None or card not in self._state.store.cards.get(card.node, ()):
            return
        request = {"profiles": list(change.profiles), "requestedTime": timestamp(self._now()), "job": change.job}
        if await self._patch(gpunode, uuid=card.uuid, entry=request):
            begins = says.RESHAPING_BEGINS(gpu=card.name, profiles=described(change.profiles))
            self._announce(change.job, why=begins, card=card)

    async def _step(self, gpunode: GPUNode, *, uuid: str, request: Reshape) -> None:
        card = next(
            (card for card in self._state.store.cards.get(gpunode.metadata.name, ()) if card.uuid == uuid), None
        )
        if card is None:
            # An agent that reads its devices and does not name this one carries nothing out.
            ready = find_condition(gpunode.status.conditions, type="Ready")
            if not request.drained or (ready is not None and ready.status == "True"):
                await self._patch(gpunode, uuid=uuid, entry=None)
        elif card.answered == request.requested_time:
            await self._finish(gpunode, card=card, request=request)
        elif not request.drained:
            await self._drain(gpunode, card=card, request=request)

    async def _drain(self, gpunode: GPUNode, *, card: Card, request: Reshape) -> None:
        """Let the agent begin once no pod has an instance of the GPU and none can get one."""
        if request.job and self._job(request.job) is None:
            await self._patch(gpunode, uuid=card.uuid, entry=None)
            return
        drain = self._drains.get(card.uuid)
        if drain is None or drain.requested_time != request.requested_time:
            self._drains[card.uuid] = _Drain(requested_time=request.requested_time, since=self._clock())
            return
        if self._clock() - drain.since < self._drain_seconds:
            return
        name = gpunode.metadata.name
        pods = await self._client.list(PODS, as_type=Pod, field_selector=f"spec.nodeName={name}")
        uuids = {instance.uuid for instance in card.instances}
        if any(_has(pod, uuids=uuids) for pod in pods.items):
            log.info("a GPU has a tenant and keeps its partition", node=name, device=card.uuid)
            await self._patch(gpunode, uuid=card.uuid, entry=None)
            return
        await self._patch(gpunode, uuid=card.uuid, entry={"drained": True})

    async def _finish(self, gpunode: GPUNode, *, card: Card, request: Reshape) -> None:
        if not await self._patch(gpunode, uuid=card.uuid, entry=None):
            return
        if not card.problem:
            ended = says.RESHAPING_ENDS(gpu=card.name, profiles=described(request.profiles))
            self._announce(request.job, why=ended, card=card)
            return
        why = says.NOT_RESHAPED(gpu=card.name, profiles=described(request.profiles), problem=card.problem)
        self._post(Announcement(about=gpunode.metadata, severity="Warning", why=why, of=GPUNODES))
        self._state.decisions.set_reshape_problem(request.job, message=why.message)
        if (job := self._job(request.job)) is not None:
            self._post(Announcement(about=job[1].metadata, severity="Warning", why=why))
            self._changed(job[0])

    async def _patch(self, gpunode: GPUNode, *, uuid: str, entry: dict[str, Any] | None) -> bool:
        """Change the entry of a GPU in the version of the GPUNode that was seen. False if that is no longer current."""
        patch = {
            "metadata": {"resourceVersion": gpunode.metadata.resource_version},
            "spec": {"reshape": {uuid: entry}},
        }
        try:
            await self._client.patch(GPUNODES, name=gpunode.metadata.name, patch=patch, as_type=GPUNode)
        except (Conflict, NotFound):
            return False  # the next check sees what has changed
        return True

    def _announce(self, uid: str, *, why: Sentence, card: Card) -> None:
        log.info("reshaping", node=card.node, device=card.uuid, message=why.message)
        self._state.decisions.set_reshape_problem(uid, message="")
        if (job := self._job(uid)) is not None:
            self._post(Announcement(about=job[1].metadata, severity="Normal", why=why))

    def _job(self, uid: str) -> tuple[str, GPUJob] | None:
        """The GPUJob with this UID and its key."""
        return next(((key, job) for key, job in self._state.store.jobs.items() if job.metadata.uid == uid), None)


def _has(pod: Pod, *, uuids: set[str]) -> bool:
    """Whether a pod has one of these devices, or an allocation that cannot be read."""
    if is_terminated(pod):
        return False
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError:
        return True
    return allocation is not None and any(device.uuid in uuids for device in allocation.devices)
