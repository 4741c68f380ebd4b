"""The Python SDK: a client of the gateway, blocking or for asyncio, and the names of the systems before."""

from dovetail.sdk.aio.allocations import AsyncAllocation
from dovetail.sdk.aio.client import AsyncClient
from dovetail.sdk.aio.jobs import AsyncJob
from dovetail.sdk.aio.tasks import AsyncTaskClient
from dovetail.sdk.blocking.allocations import Allocation
from dovetail.sdk.blocking.client import Client
from dovetail.sdk.blocking.jobs import Job
from dovetail.sdk.blocking.tasks import TaskClient
from dovetail.sdk.engine import AlgorithmTrainingEngine, AlgorithmType, TrainingConfig
from dovetail.sdk.errors import DovetailError
from dovetail.sdk.integrations import (
    get_gpu_resource_manager,
    get_pytorch_gpu_integration,
    get_tensorflow_gpu_integration,
)
from dovetail.sdk.scheduling.memory_guard import GPUMemoryGuard
from dovetail.sdk.scheduling.parser import GPUResourceParser
from dovetail.sdk.scheduling.scheduler import GPUScheduler, SchedulingPolicy, SchedulingRequest
from dovetail.sdk.training.batch_size import suggest_batch_size
from dovetail.sdk.training.config import TrainingGPUConfig
from dovetail.sdk.training.device import TrainingDevice
from dovetail.sdk.training_hook import run_with_gpu

__all__ = [
    "AlgorithmTrainingEngine",
    "AlgorithmType",
    "Allocation",
    "AsyncAllocation",
    "AsyncClient",
    "AsyncJob",
    "AsyncTaskClient",
    "Client",
    "DovetailError",
    "GPUMemoryGuard",
    "GPUResourceParser",
    "GPUScheduler",
    "Job",
    "SchedulingPolicy",
    "SchedulingRequest",
    "TaskClient",
    "TrainingConfig",
    "TrainingDevice",
    "TrainingGPUConfig",
    "get_gpu_resource_manager",
    "get_pytorch_gpu_integration",
    "get_tensorflow_gpu_integration",
    "run_with_gpu",
    "suggest_batch_size",
]
