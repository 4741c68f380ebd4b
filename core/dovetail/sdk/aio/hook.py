"""The hook of a training engine: GPUs for one training, and the CPU where that is allowed."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from dovetail.answers.v1 import Allocated
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.manager import LOGGER, AsyncGPUResourceManager
from dovetail.sdk.errors import ConflictError, DovetailError, UnreachableError
from dovetail.sdk.training import device, environment
from dovetail.sdk.training.config import Framework, GPUSettings, settings_of
from dovetail.sdk.training.device import TrainingDevice

T = TypeVar("T")
_LOG: Final = logging.getLogger(LOGGER)


async def run_training(
    algorithm_params: Mapping[str, Any],
    *,
    train: Callable[[TrainingDevice], Awaitable[T]],
    manager: AsyncGPUResourceManager | None = None,
) -> T:
    """Train on the GPUs of `algorithm_params["gpu_config"]`, which are released however the training ends.

    Raises `ConflictError` without room and `UnreachableError` without a gateway, unless `cpu_fallback` says to train on
    the CPU then; and `DovetailError`.
    """
    wanted = settings_of(algorithm_params)
    framework = device.framework_in_use(wanted.framework)
    with environment.restored():
        if not wanted.enabled:
            return await train(device.on_cpu("gpu_config is not enabled", framework=framework))
        if manager is not None:
            return await _with_gpus(wanted, framework=framework, train=train, manager=manager)
        async with AsyncGPUResourceManager() as own:
            return await _with_gpus(wanted, framework=framework, train=train, manager=own)


async def _with_gpus(
    wanted: GPUSettings,
    *,
    framework: Framework,
    train: Callable[[TrainingDevice], Awaitable[T]],
    manager: AsyncGPUResourceManager,
) -> T:
    try:
        allocation = await _allocated(wanted, manager=manager)
    except (ConflictError, UnreachableError) as error:
        if not wanted.cpu_fallback:
            raise
        _LOG.warning("training on the CPU: %s", error)
        return await train(device.on_cpu(str(error), framework=framework))
    async with _held(allocation, manager=manager):
        settings = None
        if framework != "none":
            settings = await manager.settings(framework, config=wanted.request, allocation=allocation)
        got = device.prepared(allocation, settings=settings)
        if got.why_cpu:
            _LOG.warning("training on the CPU: %s", got.why_cpu)
        return await train(got)


async def _allocated(wanted: GPUSettings, *, manager: AsyncGPUResourceManager) -> Allocated:
    """The GPUs. Raises `ConflictError` with the suggestion of what would fit, and `DovetailError`."""
    found = await manager.validate_gpu_requirements(wanted.request)
    if not found.valid:
        raise ConflictError(found.message, status=409, reason=found.reason, suggestion=found.suggestion)
    return await runtime.settled(lambda: manager.allocate(wanted.request), undo=manager.release)


@asynccontextmanager
async def _held(allocation: Allocated, *, manager: AsyncGPUResourceManager) -> AsyncIterator[None]:
    """Renew the lease while the block runs, and release the GPUs after it; a forked child releases nothing."""
    process = os.getpid()

    async def release() -> None:
        if process != os.getpid():
            return
        try:
            await manager.release(allocation)
        except DovetailError as error:
            _LOG.warning("%s is not released and ends with its lease: %s", allocation.allocation_id, error)

    try:
        async with manager.renewed(allocation):
            yield
    finally:
        await runtime.finish(release)
