"""Plays PyTorch: as many GPUs as CUDA_VISIBLE_DEVICES has, and a model that has shapes but computes nothing.

tests/sdk/test_frameworks.py has the real one.
"""

import contextlib
import os
from types import SimpleNamespace
from typing import Any

from . import distributed, nn, optim

__all__ = ["amp", "cuda", "device", "distributed", "nn", "optim", "randperm", "tensor"]
bfloat16, float16 = "bfloat16", "float16"


class Device:
    def __init__(self, name: str) -> None:
        self.type, _, index = name.partition(":")
        self.index = int(index or 0)


class Rows(list[Any]):
    def __getitem__(self, _: Any) -> Any:
        return self

    def split(self, size: int) -> list[range]:
        return [range(at, min(at + size, len(self))) for at in range(0, len(self), size)]


class Scaler:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def scale(self, loss: Any) -> Any:
        return loss

    def step(self, optimizer: optim.Adam) -> None:
        optimizer.step()

    def update(self) -> None: ...


def device(name: str) -> Device:
    return Device(name)


def tensor(values: Any, **_: Any) -> Rows:
    return Rows(values)


def randperm(count: int, **_: Any) -> Rows:
    return Rows(range(count))


def autocast(**_: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _count() -> int:
    return len([each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each])


def _nothing(*_: Any) -> None: ...


amp = SimpleNamespace(GradScaler=Scaler)
cuda = SimpleNamespace(
    device_count=_count,
    is_available=lambda: _count() > 0,
    set_device=_nothing,
    set_per_process_memory_fraction=_nothing,
)
