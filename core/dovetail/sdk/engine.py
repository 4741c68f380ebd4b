"""`AlgorithmTrainingEngine`: trainings by name, each with the GPUs of its configuration."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dovetail.sdk.aio.manager import AsyncGPUResourceManager
from dovetail.sdk.errors import InvalidError
from dovetail.sdk.training import mlp
from dovetail.sdk.training.device import TrainingDevice
from dovetail.sdk.training_hook import run_with_gpu

# Gets the algorithm's parameters, the data and the device; may be async.
Algorithm = Callable[[Mapping[str, Any], Any, TrainingDevice], Any]


class AlgorithmType(StrEnum):
    """The algorithms that every engine has. Both train the network of `mlp` on rows of numbers and their classes.

    The rows of `VIBRATION_ANALYSIS` are windows or features of a measured signal.
    """

    MLP = "mlp"
    VIBRATION_ANALYSIS = "vibration_analysis"


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """A training: its name and the algorithm's parameters, with `gpu_config` among them."""

    name: str
    algorithm_params: Mapping[str, Any] = field(default_factory=dict)


class AlgorithmTrainingEngine:
    """Trains by the name of an algorithm: one of `AlgorithmType`, or one that `register` adds."""

    def __init__(self, *, manager: AsyncGPUResourceManager | None = None) -> None:
        self._manager = manager
        self._algorithms: dict[str, Algorithm] = dict.fromkeys(AlgorithmType, mlp.train)

    def register(self, name: str, *, algorithm: Algorithm) -> None:
        """Add an algorithm, or replace the one of this name, which may be an `AlgorithmType`."""
        self._algorithms[name] = algorithm

    async def train_algorithm(self, algorithm: str, config: TrainingConfig, data: Any) -> Any:
        """The result of the algorithm, on the GPUs of `config.algorithm_params["gpu_config"]`.

        Raises `InvalidError` for a name that is not registered, and `DovetailError`.
        """
        wanted = self._algorithms.get(algorithm)
        if wanted is None:
            known = ", ".join(sorted(self._algorithms))
            raise InvalidError(
                f'algorithm "{algorithm}" is not known: known are {known}; register adds others', status=422
            )

        async def train(device: TrainingDevice) -> Any:
            if inspect.iscoroutinefunction(wanted):
                return await wanted(config.algorithm_params, data, device)
            # In a thread: the loop stays free to renew the lease.
            return await asyncio.to_thread(wanted, config.algorithm_params, data, device)

        return await run_with_gpu(config.algorithm_params, train, manager=self._manager)
