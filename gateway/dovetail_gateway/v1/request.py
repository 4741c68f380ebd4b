"""A v1 request as the spec of a GPUJob that reserves its devices. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from dovetail.answers.inventory import NodeUse
from dovetail.api.gpunode import Device
from dovetail.api.reasons import problems as says
from dovetail.gpu.models import model_of, nominal_gb, normalise
from dovetail.gpu.request import GPURequest, RequestError, parse
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.v1.types import Wanted

LEASE_SECONDS: Final = 24 * 3600
Specs = Mapping[str, float]
NO_SPECS: Final[Specs] = MappingProxyType({})
# As `spec.workers` allows.
_MOST_WORKERS: Final = 1024


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


def reservation(wanted: Wanted, *, nodes: Sequence[NodeUse], specs: Specs = NO_SPECS) -> Reservation | NoSuchGPU:
    """The reservation of a request. Raises `RequestFailedError` for a text that cannot be read.

    `specs` are the configured sizes of models in GB by family.
    """
    common = {"reservation": {"durationSeconds": LEASE_SECONDS}, "priority": wanted.priority}
    if wanted.gpu_requirement:
        request = _read(wanted.gpu_requirement)
        each = _for_each_worker(
            wanted, count=request.count, on_nodes=_asked_on_nodes(request, nodes=nodes, specs=specs)
        )
        workers = _workers(request.count, each=each)
        return Reservation(
            spec={**common, "gpu": str(replace(request, count=each)), "workers": workers}, workers=workers
        )
    if (missing := _missing(wanted, nodes=nodes, specs=specs)) is not None:
        return missing
    on_nodes = [sum(meets(device, wanted=wanted, specs=specs) for device in _devices(node)) for node in nodes]
    each = _for_each_worker(wanted, count=wanted.gpu_count, on_nodes=on_nodes)
    workers = _workers(wanted.gpu_count, each=each)
    resources: dict[str, Any] = {"count": each}
    if wanted.gpu_type:
        resources["models"] = [wanted.gpu_type]
    if wanted.memory_gb:
        # Nominal sizes are whole: no device is of 15.5 GB and fewer than 16.
        resources["minNominalMemoryGB"] = math.ceil(wanted.memory_gb)
    return Reservation(spec={**common, "resources": resources, "workers": workers}, workers=workers)


def of_type(device: Device, *, gpu_type: str | None) -> bool:
    """Whether the device is of this model; None is any."""
    return not gpu_type or normalise(gpu_type).admits(normalise(device.model))


def type_of(model: str) -> str:
    """The model of a driver's name as requests name it: V100 of `Tesla V100-SXM2-32GB`."""
    return normalise(model).family


def size_of(device: Device, *, specs: Specs = NO_SPECS) -> int:
    """The device's memory in GB as sold, with the configured sizes of models."""
    return nominal_gb(device.model, memory_mib=device.memory_mib, specs=specs)


def meets(device: Device, *, wanted: Wanted, specs: Specs = NO_SPECS) -> bool:
    """Whether the device is of the type and the size of a request."""
    return of_type(device, gpu_type=wanted.gpu_type) and size_of(device, specs=specs) >= (wanted.memory_gb or 0)


def _read(text: str) -> GPURequest:
    try:
        return parse(text)
    except RequestError as error:
        raise RequestFailedError(422, reason="Invalid", sentence=says.VALUE_REFUSED(problem=str(error))) from error


def _devices(node: NodeUse) -> list[Device]:
    return [use.device for use in node.uses]


def _missing(wanted: Wanted, *, nodes: Sequence[NodeUse], specs: Specs) -> NoSuchGPU | None:
    """What to say if no device of the type is of the size; None if one is, or if no size is asked for."""
    sizes = (
        size_of(device, specs=specs)
        for node in nodes
        for device in _devices(node)
        if of_type(device, gpu_type=wanted.gpu_type)
    )
    largest = max(sizes, default=0)
    if not wanted.memory_gb or largest >= wanted.memory_gb:
        return None
    kind = f"{wanted.gpu_type} " if wanted.gpu_type else ""
    message = f"Need GPUs {kind}of {wanted.memory_gb:g} GB, this cluster has none"
    if not largest:
        return NoSuchGPU(message=message, suggestion="ask for another gpu_type: GET /api/v1/gpu/nodes lists them")
    return NoSuchGPU(message=message, suggestion=f"ask for at most {largest} GB")


def _asked_on_nodes(request: GPURequest, *, nodes: Sequence[NodeUse], specs: Specs) -> list[int]:
    """How many devices of each node are of the models and the size that a request text names."""

    def admits(device: Device) -> bool:
        return request.admits(model_of(device.model, memory_mib=device.memory_mib, specs=specs))

    return [sum(map(admits, _devices(node))) for node in nodes]


def _for_each_worker(wanted: Wanted, *, count: int, on_nodes: Sequence[int]) -> int:
    """GPUs of each worker: all of them, or for distributed training as many as the nodes' sizes allow.

    That is the largest divisor of the count for which the nodes have places for all workers, or else the largest that
    one node has.
    """
    if not wanted.distributed_training:
        return count
    divisors = [each for each in range(min(max(on_nodes, default=1), count), 0, -1) if count % each == 0]
    placed = (each for each in divisors if sum(devices // each for devices in on_nodes) * each >= count)
    return next(placed, divisors[0] if divisors else count)


def _workers(count: int, *, each: int) -> int:
    """How many workers that is. Raises `RequestFailedError`."""
    workers = count // each
    if workers > _MOST_WORKERS:
        sentence = says.NODES_BEYOND(count=count, workers=workers, each=each, most=_MOST_WORKERS)
        raise RequestFailedError(422, reason="Invalid", sentence=sentence)
    return workers
