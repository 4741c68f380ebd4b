"""Layers with their widths."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any


class Loss(float):
    def backward(self) -> None: ...


class Module:
    def __call__(self, *_: Any) -> Any:
        return self

    def to(self, _: Any) -> Any:
        return self

    def cuda(self) -> Any:
        return self

    def parameters(self) -> list[Any]:
        return []


class Linear(Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        self.in_features, self.out_features = in_features, out_features


class ReLU(Module): ...


class Sequential(Module):
    def __init__(self, *layers: Module) -> None:
        self.layers = layers

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)


class DataParallel(Sequential):
    def __init__(self, module: Module, **_: Any) -> None:
        super().__init__(*getattr(module, "layers", ()))
        self.module = module


def _loss(*_: Any) -> Loss:
    return Loss(0.5)


functional = SimpleNamespace(cross_entropy=_loss)
parallel = SimpleNamespace(DistributedDataParallel=DataParallel)
