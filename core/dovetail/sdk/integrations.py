"""The frameworks' integrations under the names that scripts already use."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.answers.v1 import Allocated, Setup
from dovetail.sdk.blocking.manager import GPUResourceManager, log_to
from dovetail.sdk.training import pytorch, tensorflow
from dovetail.sdk.training.config import Framework, TrainingGPUConfig
from dovetail.sdk.training.pytorch import PyTorchSetup
from dovetail.sdk.training.tensorflow import TensorFlowSetup


class PyTorchGPUIntegration:
    """PyTorch on the manager's GPUs."""

    def __init__(self, manager: GPUResourceManager) -> None:
        self._manager = manager

    def setup_pytorch_gpu(self, config: TrainingGPUConfig) -> PyTorchSetup:
        """Set PyTorch up for the GPUs that the manager allocated last, or for those of this machine.

        Raises `DovetailError`.
        """
        settings, allocated = _settings(self._manager, framework="pytorch", config=config)
        return pytorch.setup(settings, allocated=allocated)

    def create_pytorch_model_with_gpu(self, model_config: Mapping[str, Any], config: TrainingGPUConfig) -> Any:
        """The `torch.nn.Module` of a configuration, on the GPU if there is one. Raises `DovetailError`."""
        return pytorch.model(model_config, setup=self.setup_pytorch_gpu(config))


class TensorFlowGPUIntegration:
    """TensorFlow on the manager's GPUs."""

    def __init__(self, manager: GPUResourceManager) -> None:
        self._manager = manager

    def setup_tensorflow_gpu(self, config: TrainingGPUConfig) -> TensorFlowSetup:
        """Set TensorFlow up for the GPUs that the manager allocated last, or for those of this machine.

        Raises `DovetailError`.
        """
        settings, allocated = _settings(self._manager, framework="tensorflow", config=config)
        return tensorflow.setup(settings, allocated=allocated)

    def create_tensorflow_model_with_gpu(self, model_config: Mapping[str, Any], config: TrainingGPUConfig) -> Any:
        """The `keras.Sequential` of a configuration, in the strategy's scope. Raises `DovetailError`."""
        return tensorflow.model(model_config, setup=self.setup_tensorflow_gpu(config))


@cache
def _manager() -> GPUResourceManager:
    return GPUResourceManager()


def get_gpu_resource_manager(*, log_file: str | Path | None = None) -> GPUResourceManager:
    """The manager of this process, for the gateway of DOVETAIL_GATEWAY. Raises `SettingsError`.

    `log_file` gets the log of `gpu_resource_manager` too.
    """
    if log_file is not None:
        log_to(log_file)
    return _manager()


def get_pytorch_gpu_integration() -> PyTorchGPUIntegration:
    """PyTorch on the GPUs of this process's manager. Raises `SettingsError`."""
    return PyTorchGPUIntegration(_manager())


def get_tensorflow_gpu_integration() -> TensorFlowGPUIntegration:
    """TensorFlow on the GPUs of this process's manager. Raises `SettingsError`."""
    return TensorFlowGPUIntegration(_manager())


def _settings(manager: GPUResourceManager, *, framework: Framework, config: TrainingGPUConfig) -> tuple[Setup, bool]:
    """The settings, and whether they are for the devices of an allocation."""
    held: Allocated | None = next(reversed(manager.allocations), None)
    return manager.settings(framework, config=config, allocation=held), held is not None
