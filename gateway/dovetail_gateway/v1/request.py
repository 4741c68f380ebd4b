"""A v1 request as the spec of a GPUJob that reserves its devices. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.gpunode import Device
from dovetail.gpu.models import nominal_gb, normalise
from dovetail.gpu.request import RequestError, parse
from dovetail_gateway.cluster.cache import NodeUse
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.v1.types import Wanted

LEASE_SECONDS: Final = 24 * 3600
# As many as `spec.resources.models` takes.
_MOST_MODELS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuchGPU:
    """No device of the cluster is of the type and the size, whatever is free."""

    message: str
    suggestion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What to reserve: the spec of a GPUJob."""

    spec: dict[str, Any]
    workers: int


def reservation(wanted: Wanted, *, nodes: Sequence[NodeUse]) -> Reservation | NoSuchGPU:
    """The reservation of a request. Raises `RequestFailedError` for a text that cannot be read."""
    common = {"reservation": {"durationSeconds": LEASE_SECONDS}, "priority": wanted.priority}
    if wanted.gpu_requirement:
        _check(wanted.gpu_requirement)
        return Reservation(spec={**common, "gpu": wanted.gpu_requirement}, workers=1)
    models = models_for(wanted, nodes=nodes)
    if isinstance(models, NoSuchGPU):
        return models
    each = _for_each_worker(wanted, nodes=nodes)
    workers = wanted.gpu_count // each
    resources = {"count": each} | ({"models": models} if models else {})
    return Reservation(spec={**common, "resources": resources, "workers": workers}, workers=workers)


def models_for(wanted: Wanted, *, nodes: Sequence[NodeUse]) -> list[str] | NoSuchGPU:
    """The models that meet type and size; empty if any does.

    A model counts only if each of its devices is large enough: the request names models, not devices.
    """
    if not wanted.gpu_type and not wanted.memory_gb:
        return []
    if not wanted.memory_gb:
        return [wanted.gpu_type] if wanted.gpu_type else []
    smallest = _smallest(
        device for node in nodes for device in _devices(node) if of_type(device, gpu_type=wanted.gpu_type)
    )
    large = sorted(name for name, size in smallest.items() if size >= wanted.memory_gb)[:_MOST_MODELS]
    return large or _none(wanted, largest=max(smallest.values(), default=0))


def of_type(device: Device, *, gpu_type: str | None) -> bool:
    """Whether the device is of this model; None is any."""
    return not gpu_type or normalise(gpu_type).admits(normalise(device.model))


def size_of(device: Device) -> int:
    """The device's memory in GB as sold."""
    return nominal_gb(device.model, memory_mib=device.memory_mib)


def _check(text: str) -> None:
    try:
        parse(text)
    except RequestError as error:
        raise RequestFailedError(422, reason="Invalid", message=str(error)) from error


def _devices(node: NodeUse) -> list[Device]:
    return [use.device for use in node.uses]


def _smallest(devices: Iterable[Device]) -> dict[str, int]:
    """The size of the smallest device of each model."""
    found: dict[str, int] = defaultdict(lambda: 1 << 30)
    for device in devices:
        found[device.model] = min(found[device.model], size_of(device))
    return dict(found)


def _none(wanted: Wanted, *, largest: int) -> NoSuchGPU:
    kind = f"{wanted.gpu_type} " if wanted.gpu_type else ""
    message = f"Need GPUs {kind}of {wanted.memory_gb:g} GB, this cluster has none"
    if not largest:
        return NoSuchGPU(message=message, suggestion="ask for another gpu_type: GET /api/v1/gpu/nodes lists them")
    return NoSuchGPU(message=message, suggestion=f"ask for at most {largest} GB")


def _for_each_worker(wanted: Wanted, *, nodes: Sequence[NodeUse]) -> int:
    """GPUs of each worker: all of them, or for distributed training the largest divisor that one node has."""
    if not wanted.distributed_training:
        return wanted.gpu_count
    most = max(
        (sum(of_type(device, gpu_type=wanted.gpu_type) for device in _devices(node)) for node in nodes), default=1
    )
    fitting = (each for each in range(min(most, wanted.gpu_count), 0, -1) if wanted.gpu_count % each == 0)
    return next(fitting, wanted.gpu_count)
