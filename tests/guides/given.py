"""What the guides' Python takes for granted: names that a reader has from elsewhere. Each function gives some."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FRAMEWORKS = str(Path(__file__).with_name("frameworks"))


class _Logger:
    """Keeps the levels of what is logged."""

    def __init__(self) -> None:
        self.levels: list[str] = []

    def __getattr__(self, level: str) -> Callable[[str], None]:
        return lambda _: self.levels.append(level.upper())


class _Optimizer:
    steps = 0

    def step(self) -> None:
        self.steps += 1

    def zero_grad(self) -> None: ...


class _Loss:
    def __truediv__(self, _: int) -> "_Loss":
        return self

    def backward(self) -> None: ...


def engine_names() -> dict[str, Any]:
    from backend.algorithm_engine.core import AlgorithmType, TrainingConfig

    return {"AlgorithmType": AlgorithmType, "TrainingConfig": TrainingConfig}


def data() -> dict[str, Any]:
    return {"data": ([[0.1, 0.2], [0.3, 0.4]], [0, 1])}


def torch() -> dict[str, Any]:
    return _framework("torch", instead_of="tensorflow")


def tensorflow() -> dict[str, Any]:
    return _framework("tensorflow", instead_of="torch")


def logger() -> dict[str, Any]:
    return {"logger": _Logger()}


def trainings() -> dict[str, Any]:
    async def train() -> str:
        return "trained"

    return {"train_model": train, "train_model_cpu": train}


def too_large() -> dict[str, Any]:
    from backend.algorithm_engine.gpu_resource_integration import TrainingGPUConfig

    return {"gpu_config": TrainingGPUConfig(gpu_count=1, gpu_type="V100", memory_gb=40.0)}


def v100() -> dict[str, Any]:
    from backend.algorithm_engine.gpu_resource_integration import TrainingGPUConfig

    return {"gpu_config": TrainingGPUConfig(gpu_type="V100", memory_gb=32.0)}


def accumulation() -> dict[str, Any]:
    return {"data": list(range(16)), "batch_size": 2, "model": lambda _: _Loss(), "optimizer": _Optimizer()}


def k8s_client() -> dict[str, Any]:
    from kubernetes import client, config
    from src.gpu_memory_guard import GPUMemoryGuard
    from src.gpu_parser import GPUResourceParser
    from src.gpu_scheduler import SchedulingPolicy

    made = client.CoreV1Api(config.new_client_from_config(os.environ["GUIDES_KUBECONFIG"]))
    parser = GPUResourceParser()
    names = {"GPUMemoryGuard": GPUMemoryGuard, "SchedulingPolicy": SchedulingPolicy}
    return {"k8s_client": made, "gpu_parser": parser, "memory_guard": GPUMemoryGuard(made, parser), **names}


def another_request() -> dict[str, Any]:
    from src.gpu_scheduler import SchedulingRequest

    return {"request": SchedulingRequest("training-job-2", "default", "1(V100)", memory_requirement=32.0)}


def score_terms() -> dict[str, Any]:
    """Terms of different sizes, and their sum with the default weights."""
    from dovetail.config.settings import Settings

    weights = Settings().score_weights
    expected = weights.utilization + 10 * weights.memory + 100 * weights.cpu + 1000 * weights.fragmentation
    return {
        "gpu_utilization_score": 1,
        "memory_utilization_score": 10,
        "cpu_utilization_score": 100,
        "fragmentation_penalty": 1000,
        "expected_score": round(expected, 6),
    }


def _framework(name: str, *, instead_of: str) -> dict[str, Any]:
    """The framework is imported, and no other."""
    for module in [each for each in sys.modules if each.partition(".")[0] == instead_of]:
        del sys.modules[module]
    sys.path.insert(0, FRAMEWORKS)
    __import__(name)
    return {}
