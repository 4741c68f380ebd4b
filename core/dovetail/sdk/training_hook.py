"""`run_with_gpu`: the hook of a training engine, for functions with and without asyncio.

A module of its own: scripts with an engine of their own call it, and load no algorithm with it.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, overload

from dovetail.sdk.aio import hook as aio_hook
from dovetail.sdk.aio.manager import AsyncGPUResourceManager
from dovetail.sdk.blocking import hook as blocking_hook
from dovetail.sdk.blocking.manager import GPUResourceManager
from dovetail.sdk.training.device import TrainingDevice

T = TypeVar("T")


@overload
def run_with_gpu(
    algorithm_params: Mapping[str, Any],
    train: Callable[..., Awaitable[T]],
    *,
    manager: AsyncGPUResourceManager | None = None,
) -> Awaitable[T]: ...
@overload
def run_with_gpu(
    algorithm_params: Mapping[str, Any], train: Callable[..., T], *, manager: GPUResourceManager | None = None
) -> T: ...
def run_with_gpu(algorithm_params: Mapping[str, Any], train: Callable[..., Any], *, manager: Any = None) -> Any:
    """Run `train` on the GPUs of `algorithm_params["gpu_config"]`; its result, to be awaited if `train` is async.

    `gpu_config` has `enabled`, the fields of `TrainingGPUConfig`, `framework` (`pytorch`, `tensorflow` or `none`;
    without it, the one that is imported) and `cpu_fallback`. The GPUs are validated, allocated, set up for the
    framework, and released however `train` ends. `train` gets a `TrainingDevice` if it takes a value. Raises
    `DovetailError`.
    """
    called = _with_device(train)
    if inspect.iscoroutinefunction(train):
        return aio_hook.run_training(algorithm_params, train=called, manager=manager)
    return blocking_hook.run_training(algorithm_params, train=called, manager=manager)


def _with_device(train: Callable[..., Any]) -> Callable[[TrainingDevice], Any]:
    """The function with the device as its only value, also if it takes none."""
    kinds = {each.kind for each in inspect.signature(train).parameters.values()}
    takes = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
    return train if kinds & takes else lambda _device: train()
