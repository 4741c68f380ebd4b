"""v2: use and limits of the devices, and what they measure."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from dovetail.answers.v2 import GPU, ActiveTask, Configured, Counts, GPUs, Resources
from dovetail.api.access_reviews import Act
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, TenantLimits
from dovetail.api.reasons import problems as says
from dovetail.api.resources import GPUNODES
from dovetail.config.settings import Settings
from dovetail.gpu import cuda
from dovetail_gateway.access.callers import Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v2.devices import Devices, NumberedDevice, devices_of, places_of, usage_of
from dovetail_gateway.v2.tasks import kind_of
from dovetail_gateway.v2.types import MOST_TENANTS, NewLimits, TaskLimits
from dovetail_gateway.v3.permissions import require

_NONE = Counts(training=0, inference=0)
_MIB_PER_GIB = 1024
# How long an answer waits for the gateway's own view, so that the next answer has the new limits.
_CACHE_SECONDS = 2.0


class ResourceCalls:
    """The handlers of resources. The limits are those of the GPUNodes, so they outlive every restart."""

    def __init__(self, cache: ClusterCache, *, clients: Clients, reviews: Reviews) -> None:
        self._cache = cache
        self._clients = clients
        self._reviews = reviews

    async def get_resources(self, call: Call[Nothing, Nothing, Any]) -> Answer:
        """Use, tasks and limits of each device."""
        devices, jobs = self._devices(), list(self._cache.jobs.values())
        usage, active = usage_of(jobs), _active(jobs, devices=devices, sees=call.sees)
        return Answer(
            value=Resources(
                device_usage={each.name: usage.get(each.at, _NONE) for each in devices},
                active_tasks={each.name: active.get(each.name, []) for each in devices},
                limits={each.name: limits_of(each, settings=self._cache.settings) for each in devices},
            )
        )

    async def get_gpus(self, _call: Call[Nothing, Nothing, Any]) -> Answer:
        """The measurements of each device."""
        devices = list(self._devices())
        usage = usage_of(self._cache.jobs.values())
        versions = [each.gpunode.status.runtime_version for each in devices]
        return Answer(
            value=GPUs(
                available=any(each.use.takes_work for each in devices),
                count=len(devices),
                cuda_version=max(versions, default="", key=_order) or None,
                pytorch_version=None,
                devices=[device_row(each, tasks=usage.get(each.at, _NONE)) for each in devices],
            )
        )

    async def configure(self, call: Call[Nothing, Nothing, NewLimits]) -> Answer:
        """Change the limits of devices as the caller: all that are named, or none."""
        await require(self._reviews, caller=call.caller, act=Act(verb="patch", resource="gpunodes"))
        devices = self._devices()
        wanted = {name: _checked(name, limits=limits) for name, limits in call.body.max_concurrent.items()}
        found = {name: devices.named(name) for name in wanted}
        patches: dict[str, dict[str, Any]] = {}
        for name, device in found.items():
            patches.setdefault(device.at.node, {})[device.use.device.uuid] = wanted[name]
        written: dict[str, GPUNode] = {}
        async with self._clients.client_for(call.caller) as client:
            for node, limits in patches.items():
                patch = {"spec": {"tenantLimits": limits}}
                written[node] = await client.patch(GPUNODES, name=node, patch=patch, as_type=GPUNode)
        for node, gpunode in written.items():
            await self._cache.until_node(node, holds=partial(_has_limits, of=gpunode), seconds=_CACHE_SECONDS)
        settings = self._cache.settings
        limits_now = {
            name: _limits(written[device.at.node], uuid=device.use.device.uuid, settings=settings)
            for name, device in found.items()
        }
        return Answer(value=Configured(success=True, limits=limits_now))

    def _devices(self) -> Devices:
        return devices_of(self._cache.node_uses(), indexes=self._cache.device_indexes)


def limits_of(device: NumberedDevice, *, settings: Settings) -> Counts:
    """How many tasks of each kind may share the device."""
    return _limits(device.gpunode, uuid=device.use.device.uuid, settings=settings)


def _has_limits(seen: GPUNode | None, *, of: GPUNode) -> bool:
    return seen is None or seen.spec.tenant_limits == of.spec.tenant_limits


def _limits(gpunode: GPUNode, *, uuid: str, settings: Settings) -> Counts:
    own = gpunode.spec.tenant_limits.get(uuid, TenantLimits())
    return Counts(
        training=settings.training_per_device if own.training is None else own.training,
        inference=settings.inference_per_device if own.inference is None else own.inference,
    )


def _checked(name: str, *, limits: TaskLimits) -> Mapping[str, int]:
    given = {"training": limits.training, "inference": limits.inference}
    wrong = next((kind for kind, most in given.items() if most is not None and not 0 <= most <= MOST_TENANTS), None)
    if wrong is not None:
        sentence = says.TENANTS_BEYOND(device=name, workload=wrong, value=str(given[wrong]), most=MOST_TENANTS)
        raise RequestFailedError(422, reason="Invalid", sentence=sentence)
    return {kind: most for kind, most in given.items() if most is not None}


def _active(jobs: list[GPUJob], *, devices: Devices, sees: Visibility) -> dict[str, list[ActiveTask]]:
    found: dict[str, list[ActiveTask]] = {}
    for job in jobs:
        kind = kind_of(job)
        if kind is not None and sees.sees(job.metadata.namespace):
            for at in places_of(job):
                found.setdefault(devices.name_of(at), []).append(ActiveTask(id=job.metadata.name, type=kind))
    return found


def device_row(each: NumberedDevice, *, tasks: Counts) -> GPU:
    """The row of a device with its number of tasks."""
    device = each.use.device
    promised = sum(holder.memory_mib for holder in each.use.holders)
    # What a device that cannot report has free is not known.
    free = None if each.use.used_mib is None else max(0, device.memory_mib - max(promised, each.use.used_mib))
    return GPU(
        id=each.number,
        device_name=each.name,
        node=each.at.node,
        index=each.at.index,
        name=device.model,
        compute_capability=device.compute_capability or None,
        total_memory_gb=_gib(device.memory_mib),
        allocated_memory_gb=_gib(promised),
        cached_memory_gb=None,
        free_memory_gb=None if free is None else _gib(free),
        utilization=None if each.use.utilization is None else round(each.use.utilization * 100, 2),
        temperature=each.use.temperature_celsius,
        power=each.use.power_watts,
        stale=bool(each.use.stale),
        message=each.use.reason,
        current_tasks=tasks,
    )


def _order(version: str) -> cuda.CudaVersion:
    """What a text of a version is compared by: 12.10 is newer than 12.9."""
    return cuda.parse(version) or cuda.CudaVersion(0, 0)


def _gib(mib: int) -> float:
    return round(mib / _MIB_PER_GIB, 2)
