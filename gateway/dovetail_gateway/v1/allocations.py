"""v1: validate, allocate and release. An allocation is a GPUJob with `spec.reservation`, written as the caller."""

import asyncio
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from dovetail.answers.inventory import NodeUse
from dovetail.answers.v1 import Allocated, AllocatedDevice, GPUConfig, Released, Validity
from dovetail.api.access_reviews import Act
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.gpunode import Device
from dovetail.api.reasons import problems as says
from dovetail.api.resources import GPUJOBS
from dovetail.decoding import UnreadableError, convert
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound, StatusError
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import Refused, RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v1.request import NoSuchGPU, Specs, meets, reservation, size_of, type_of
from dovetail_gateway.v1.types import AllocationPath, Wanted
from dovetail_gateway.v3.permissions import require

WAIT_SECONDS: Final = 5.0
_PREFIX: Final = "alloc-"
# The queue's reasons that no wait changes.
_NEVER: Final = frozenset({"ExceedsCapacity", "Invalid"})


class Allocations:
    """The handlers of validate, allocate and release; `namespace` is where allocations are."""

    def __init__(
        self,
        cache: ClusterCache,
        *,
        clients: Clients,
        reviews: Reviews,
        answers: Answers,
        namespace: str,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._cache = cache
        self._clients = clients
        self._reviews = reviews
        self._answers = answers
        self._namespace = namespace
        self._wait_seconds = wait_seconds
        self._withdrawing = set[asyncio.Task[None]]()

    @property
    def _specs(self) -> Specs:
        """The configured sizes of models in GB by family."""
        return self._cache.settings.limits.memory_specs

    async def validate(self, call: Call[Nothing, Nothing, Wanted]) -> Answer:
        """Whether the request would get its GPUs now."""
        await require(self._reviews, caller=call.caller, act=Act(verb="create", namespace=self._namespace))
        nodes = self._cache.node_uses()
        asked = reservation(call.body, nodes=nodes, specs=self._specs)
        if isinstance(asked, NoSuchGPU):
            return Answer(
                value=Validity(
                    valid=False, reason="ExceedsCapacity", message=asked.message, suggestion=asked.suggestion
                )
            )
        found = await self._answers.dry_run(self._as_job(asked.spec), who=call.who, sees=call.sees)
        starts = found.outcome == "Starts"
        return Answer(
            value=Validity(
                valid=starts,
                reason=found.reason,
                message=found.message,
                suggestion="" if starts else suggestion(call.body, nodes=nodes, specs=self._specs),
            )
        )

    async def allocate(self, call: Call[Nothing, Nothing, Wanted]) -> Answer:
        """Reserve the GPUs, wait for them, and withdraw the request if it does not get them in time."""
        await require(self._reviews, caller=call.caller, act=Act(verb="create", namespace=self._namespace))
        asked = reservation(call.body, nodes=self._cache.node_uses(), specs=self._specs)
        if isinstance(asked, NoSuchGPU):
            return _no(reason="ExceedsCapacity", message=f"{asked.message}; {asked.suggestion}")
        name = _PREFIX + secrets.token_hex(5)
        manifest = {"metadata": {"name": name, "generateName": _PREFIX}, "spec": asked.spec}
        creating, holds = asyncio.ensure_future(self._create(call.caller, manifest=manifest)), False
        try:
            await asyncio.shield(creating)
            job = await self._cache.until(f"{self._namespace}/{name}", holds=_is_decided, seconds=self._wait_seconds)
            holds = job is not None and _holds(job)
        finally:
            # Also when the client has hung up, or no answer says whether it was created: no one could release it.
            if not holds:
                await self._withdraw(call.caller, name=name, creating=creating)
        if job is None or not holds:
            return _refused(job, seconds=self._wait_seconds)
        return Answer(value=self._allocated(job, wanted=call.body))

    async def release(self, call: Call[AllocationPath, Nothing, Any]) -> Answer:
        """Release an allocation as the caller. Idempotent."""
        name, released = call.path.id, True
        async with self._clients.client_for(call.caller) as client:
            try:
                await self._delete(client, name=name)
            except NotFound:
                released = False
        return Answer(value=Released(success=True, allocation_id=name, released=released))

    async def find(self, caller: Caller, *, name: str) -> GPUJob:
        """An allocation, as the API server lets the caller read it. Raises `KubeError` and `RequestFailedError`."""
        async with self._clients.client_for(caller) as client:
            return await self._read(client, name=name)

    async def _read(self, client: Client, *, name: str) -> GPUJob:
        job = await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=self._namespace)
        if job.spec.reservation is None:
            sentence = says.NO_ALLOCATION(name=name, namespace=self._namespace)
            raise RequestFailedError(409, reason="NoAllocation", sentence=sentence)
        return job

    async def _delete(self, client: Client, *, name: str) -> None:
        job = await self._read(client, name=name)
        await client.delete(GPUJOBS, name=name, namespace=self._namespace, uid=job.metadata.uid)

    async def _create(self, caller: Caller, *, manifest: dict[str, Any]) -> None:
        async with self._clients.client_for(caller) as client:
            await client.create(GPUJOBS, body=manifest, as_type=GPUJob, namespace=self._namespace, strict=True)

    async def _withdraw(self, caller: Caller, *, name: str, creating: asyncio.Future[None]) -> None:
        """Delete the reservation even if this request is cancelled meanwhile. One that was refused is not there."""

        async def delete() -> None:
            # A deletion must not overtake what it deletes.
            await asyncio.wait({creating})
            if not creating.cancelled() and _is_refusal(creating.exception()):
                return
            async with self._clients.client_for(caller) as client:
                try:
                    await client.delete(GPUJOBS, name=name, namespace=self._namespace)
                except NotFound:
                    return

        task = asyncio.ensure_future(delete())
        self._withdrawing.add(task)
        task.add_done_callback(self._withdrawing.discard)
        await asyncio.shield(task)

    def _as_job(self, spec: dict[str, Any]) -> GPUJob:
        try:
            return convert({"metadata": {"name": "asked", "namespace": self._namespace}, "spec": spec}, as_type=GPUJob)
        except UnreadableError as error:
            raise RequestFailedError(
                422, reason="Invalid", sentence=says.VALUE_REFUSED(problem=error.problem)
            ) from error

    def _allocated(self, job: GPUJob, *, wanted: Wanted) -> Allocated:
        devices = allocated_devices(job, cache=self._cache)
        nodes = list(dict.fromkeys(device.node for device in devices)) or job.status.nodes
        lease = job.status.lease
        return Allocated(
            success=True,
            node_name=nodes[0] if nodes else "",
            gpu_config=GPUConfig(
                gpu_count=len(devices),
                gpu_type=devices[0].gpu_type if devices else "",
                memory_gb=self._memory_gb(job),
                nodes=nodes,
                devices=devices,
                visible_devices=",".join(str(device.index) for device in devices if device.node == nodes[0]),
                distributed_training=wanted.distributed_training,
                mixed_precision=wanted.mixed_precision,
                gpu_memory_fraction=wanted.gpu_memory_fraction,
                namespace=job.metadata.namespace,
                expires_at=None if lease is None else lease.expiration_time,
            ),
            allocation_id=job.metadata.name,
        )

    def _memory_gb(self, job: GPUJob) -> float:
        """The memory of the smallest device of an allocation in GB: as sold if it is whole, otherwise its promise."""
        sizes = list[int]()
        for held in job.status.devices:
            found = device_at(held.node, uuid=held.uuid, cache=self._cache)
            is_whole = held.share_milli == WHOLE_MILLI
            sizes.append(size_of(found, specs=self._specs) if found and is_whole else round(held.memory_mib / 1024))
        return float(min(sizes, default=0))


def device_at(node_name: str, *, uuid: str, cache: ClusterCache) -> Device | None:
    """A device as its agent reports it; None if it does not."""
    node = cache.node_use(node_name)
    return next((use.device for use in node.uses if use.device.uuid == uuid), None) if node else None


def allocated_devices(job: GPUJob, *, cache: ClusterCache) -> list[AllocatedDevice]:
    """The devices that a job holds, in the order of its workers."""
    found = []
    for device in job.status.devices:
        reported = device_at(device.node, uuid=device.uuid, cache=cache)
        found.append(
            AllocatedDevice(
                node=device.node,
                index=device.index,
                uuid=device.uuid,
                gpu_type=type_of(reported.model) if reported else "",
                memory_mib=device.memory_mib,
            )
        )
    return found


def suggestion(wanted: Wanted, *, nodes: Sequence[NodeUse], specs: Specs) -> str:
    """The largest number, or else the largest memory, that would fit now."""
    free = [use.device for node in nodes for use in node.available]
    fitting = [sum(meets(use.device, wanted=wanted, specs=specs) for use in node.available) for node in nodes]
    most = sum(fitting) if wanted.distributed_training else max(fitting, default=0)
    kind, where = wanted.gpu_type or "GPUs", "in all" if wanted.distributed_training else "on one node"
    if most:
        return f"ask for at most {most} {kind}: as many are free {where}"
    if not free and (reason := _nothing_works(nodes)):
        return f"no GPU takes work: {reason}"
    if not free:
        return "no GPU is free: wait until a job ends, or allocate with a higher priority"
    largest = max(size_of(device, specs=specs) for device in free)
    return f"ask for another gpu_type or at most {largest} GB: no {kind} of that size is free"


def _nothing_works(nodes: Sequence[NodeUse]) -> str:
    """Why no GPU of the cluster takes work, as the first one says; empty where one does."""
    uses = [use for node in nodes for use in node.uses if not use.is_instance]
    return "" if any(use.takes_work for use in uses) else next((use.reason for use in uses), "")


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the API server has said that the write did not happen. A proxy's 504 does not say so."""
    return isinstance(error, StatusError) and error.code < HTTPStatus.INTERNAL_SERVER_ERROR


def _is_decided(job: GPUJob | None) -> bool:
    if job is None:
        return False
    return _holds(job) or job.status.phase in FINISHED or job.status.reason in _NEVER


def _holds(job: GPUJob) -> bool:
    return job.status.phase == "Running" and bool(job.status.devices)


def _refused(job: GPUJob | None, *, seconds: float) -> Answer:
    status = None if job is None else job.status
    reason = (status.reason if status else "") or "Resources"
    message = (status.message if status else "") or f"no place within {seconds:g} s"
    return _no(reason=reason, message=message)


def _no(*, reason: str, message: str) -> Answer:
    return Answer(status=409, value=Refused(reason=reason, message=message))
