from .aio.allocations import AsyncAllocation
from .aio.client import AsyncClient
from .aio.functions import AsyncFunctionJob, AsyncMapJob
from .aio.jobs import AsyncJob
from .aio.tasks import AsyncTaskClient
from .blocking.allocations import Allocation
from .blocking.client import Client
from .blocking.functions import FunctionJob, MapJob, as_completed
from .blocking.jobs import Job
from .blocking.tasks import TaskClient
from .engine import AlgorithmTrainingEngine, AlgorithmType, TrainingConfig
from .errors import DovetailError, FunctionFailedError
from .executor import Executor
from .integrations import (
    get_gpu_resource_manager,
    get_pytorch_gpu_integration,
    get_tensorflow_gpu_integration,
)
from .scheduling.memory_guard import GPUMemoryGuard
from .scheduling.parser import GPUResourceParser
from .scheduling.scheduler import GPUScheduler, SchedulingPolicy, SchedulingRequest
from .training.batch_size import suggest_batch_size
from .training.config import TrainingGPUConfig
from .training.device import TrainingDevice
from .training_hook import run_with_gpu

__all__ = [
    "AlgorithmTrainingEngine",
    "AlgorithmType",
    "Allocation",
    "AsyncAllocation",
    "AsyncClient",
    "AsyncFunctionJob",
    "AsyncJob",
    "AsyncMapJob",
    "AsyncTaskClient",
    "Client",
    "DovetailError",
    "Executor",
    "FunctionFailedError",
    "FunctionJob",
    "GPUMemoryGuard",
    "GPUResourceParser",
    "GPUScheduler",
    "Job",
    "MapJob",
    "SchedulingPolicy",
    "SchedulingRequest",
    "TaskClient",
    "TrainingConfig",
    "TrainingDevice",
    "TrainingGPUConfig",
    "as_completed",
    "get_gpu_resource_manager",
    "get_pytorch_gpu_integration",
    "get_tensorflow_gpu_integration",
    "run_with_gpu",
    "suggest_batch_size",
]
