"""What a training runs on, and which framework it uses."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dovetail.answers.v1 import Allocated, Distribution, Setup
from dovetail.sdk.training import environment, pytorch, tensorflow
from dovetail.sdk.training.config import Framework
from dovetail.sdk.training.pytorch import PyTorchSetup
from dovetail.sdk.training.tensorflow import TensorFlowSetup

_Made = PyTorchSetup | TensorFlowSetup
_SETUP: Final[dict[str, Callable[..., _Made]]] = {"pytorch": pytorch.setup, "tensorflow": tensorflow.setup}
_MODULES: Final[dict[Framework, str]] = {"pytorch": "torch", "tensorflow": "tensorflow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDevice:
    """What a training got.

    - `allocation`: its GPUs; None on the CPU
    - `setup`: the framework as it is set up; None without one
    - `why_cpu`: why it computes on the CPU, also if GPUs are allocated and the framework sees none; empty with GPUs
    """

    allocation: Allocated | None
    setup: _Made | None
    why_cpu: str = ""

    @property
    def node(self) -> str | None:
        """The node of the GPUs."""
        return None if self.allocation is None else self.allocation.node_name

    @property
    def on_gpu(self) -> bool:
        """Whether the training computes on GPUs."""
        return self.allocation is not None and not self.why_cpu


def framework_in_use(wanted: Framework | None) -> Framework:
    """The framework that is named, otherwise the one that this process has imported; `none` for neither."""
    imported: Framework = next((name for name, module in _MODULES.items() if module in sys.modules), "none")
    return wanted or imported


def prepared(allocation: Allocated, *, settings: Setup | None) -> TrainingDevice:
    """The device of an allocation, with the framework of the settings set up. Raises `DovetailError`."""
    if settings is not None:
        made = _SETUP[settings.framework](settings, allocated=True)
        where = f"{made.message}; the allocated GPUs are on {allocation.node_name}"
        return TrainingDevice(allocation=allocation, setup=made, why_cpu=where if made.message else "")
    devices = allocation.gpu_config.devices
    here = ",".join(device.uuid for device in devices if device.node == allocation.node_name)
    environment.apply({"CUDA_VISIBLE_DEVICES": here}, allocated=True)
    return TrainingDevice(allocation=allocation, setup=None)


def on_cpu(why: str, *, framework: Framework) -> TrainingDevice:
    """The CPU, and why, with the framework set up for it. Raises `DovetailError`."""
    environment.hide_gpus()
    made = None if framework == "none" else _SETUP[framework](_cpu_settings(framework), allocated=False)
    return TrainingDevice(allocation=None, setup=made, why_cpu=why)


def _cpu_settings(framework: Framework) -> Setup:
    one = Distribution(
        enabled=False,
        strategy="none",
        world_size=1,
        nodes=[],
        processes_per_node=1,
        master_address="",
        master_port=0,
        backend="",
    )
    return Setup(
        success=True,
        framework=framework,
        visible_devices="",
        memory_limit_mib=None,
        memory_fraction=None,
        mixed_precision=False,
        precision="float32",
        distribution=one,
        environment={},
    )
