"""v1: the settings of PyTorch and TensorFlow for a request or an allocation."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dovetail.answers.v1 import AllocatedDevice, Distribution, Setup
from dovetail.gpu.models import memory_mib
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v1.allocations import Allocations, allocated_devices
from dovetail_gateway.v1.types import Wanted

MASTER_PORT: Final = 29500


class SetupCalls:
    """The handlers of setup-pytorch and setup-tensorflow."""

    def __init__(self, cache: ClusterCache, *, allocations: Allocations) -> None:
        self._cache = cache
        self._allocations = allocations

    async def setup_pytorch(self, call: Call[Nothing, Nothing, Wanted]) -> Answer:
        """PyTorch's settings."""
        return Answer(value=pytorch(call.body, devices=await self._devices(call)))

    async def setup_tensorflow(self, call: Call[Nothing, Nothing, Wanted]) -> Answer:
        """TensorFlow's settings."""
        return Answer(value=tensorflow(call.body, devices=await self._devices(call)))

    async def _devices(self, call: Call[Nothing, Nothing, Wanted]) -> Sequence[AllocatedDevice]:
        if call.body.allocation_id is None:
            return ()
        job = await self._allocations.find(call.caller, name=call.body.allocation_id)
        return allocated_devices(job, cache=self._cache)


def pytorch(wanted: Wanted, *, devices: Sequence[AllocatedDevice] = ()) -> Setup:
    """PyTorch's settings: autocast, and DistributedDataParallel over NCCL for several GPUs."""
    visible, spread = _visible(wanted, devices=devices), _distribution(wanted, devices=devices)
    if spread.enabled:
        spread = _with(spread, strategy="ddp", backend="nccl")
    environment = {"CUDA_VISIBLE_DEVICES": visible}
    if spread.enabled:
        environment |= {
            "MASTER_ADDR": spread.master_address,
            "MASTER_PORT": str(spread.master_port),
            "WORLD_SIZE": str(spread.world_size),
        }
    precision = "float16" if wanted.mixed_precision else "float32"
    return _setup(
        "pytorch", wanted=wanted, devices=devices, precision=precision, spread=spread, environment=environment
    )


def tensorflow(wanted: Wanted, *, devices: Sequence[AllocatedDevice] = ()) -> Setup:
    """TensorFlow's settings: Keras' precision policy, and a mirrored strategy for several GPUs."""
    visible, spread = _visible(wanted, devices=devices), _distribution(wanted, devices=devices)
    if spread.enabled:
        several = len(spread.nodes) > 1
        strategy = "MultiWorkerMirroredStrategy" if several else "MirroredStrategy"
        spread = _with(spread, strategy=strategy, backend="nccl")
    environment = {"CUDA_VISIBLE_DEVICES": visible, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    precision = "mixed_float16" if wanted.mixed_precision else "float32"
    return _setup(
        "tensorflow", wanted=wanted, devices=devices, precision=precision, spread=spread, environment=environment
    )


def _setup(
    framework: str,
    *,
    wanted: Wanted,
    devices: Sequence[AllocatedDevice],
    precision: str,
    spread: Distribution,
    environment: dict[str, str],
) -> Setup:
    return Setup(
        success=True,
        framework=framework,
        visible_devices=environment["CUDA_VISIBLE_DEVICES"],
        memory_limit_mib=_limit(wanted, devices=devices),
        memory_fraction=wanted.gpu_memory_fraction,
        mixed_precision=wanted.mixed_precision,
        precision=precision,
        distribution=spread,
        environment=environment,
    )


def _visible(wanted: Wanted, *, devices: Sequence[AllocatedDevice]) -> str:
    """The devices of one node: by UUID of an allocation, otherwise the first ones."""
    if devices:
        return ",".join(device.uuid for device in devices if device.node == devices[0].node)
    return ",".join(map(str, range(wanted.gpu_count)))


def _limit(wanted: Wanted, *, devices: Sequence[AllocatedDevice]) -> int | None:
    """The MiB that a process may use of each device; None if nothing limits it or the size is not known."""
    size = min((device.memory_mib for device in devices), default=None)
    if size is None and wanted.memory_gb:
        size = round(wanted.memory_gb * 1024)
    if size is None and wanted.gpu_type:
        size = memory_mib(wanted.gpu_type)
    return None if size is None else int(size * (wanted.gpu_memory_fraction or 1.0))


def _distribution(wanted: Wanted, *, devices: Sequence[AllocatedDevice]) -> Distribution:
    nodes = list(dict.fromkeys(device.node for device in devices))
    count = len(devices) or wanted.gpu_count
    return Distribution(
        enabled=wanted.distributed_training and count > 1,
        strategy="none",
        world_size=count,
        nodes=nodes,
        processes_per_node=max(1, count // max(1, len(nodes))),
        master_address=nodes[0] if nodes else "127.0.0.1",
        master_port=MASTER_PORT,
        backend="",
    )


def _with(spread: Distribution, **fields: Any) -> Distribution:
    return msgspec.structs.replace(spread, **fields)
