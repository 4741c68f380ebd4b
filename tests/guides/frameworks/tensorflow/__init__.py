"""Plays TensorFlow: as many GPUs as CUDA_VISIBLE_DEVICES has, and a model that has shapes but computes nothing."""

import contextlib
import os
from types import SimpleNamespace
from typing import Any


class Strategy:
    def scope(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Sequential:
    def __init__(self, layers: list[Any]) -> None:
        self.widths = [layer for layer in layers if layer is not None]


def _gpus(_: str) -> list[str]:
    return [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]


def _dense(width: int, **_: Any) -> int:
    return width


def _nothing(*_: Any, **__: Any) -> None: ...


config = SimpleNamespace(
    list_physical_devices=_gpus,
    LogicalDeviceConfiguration=dict,
    set_logical_device_configuration=_nothing,
    experimental=SimpleNamespace(set_memory_growth=_nothing),
)
distribute = SimpleNamespace(MirroredStrategy=Strategy, MultiWorkerMirroredStrategy=Strategy, get_strategy=Strategy)
keras = SimpleNamespace(
    mixed_precision=SimpleNamespace(set_global_policy=_nothing),
    layers=SimpleNamespace(Dense=_dense),
    Input=_nothing,
    Sequential=Sequential,
)
