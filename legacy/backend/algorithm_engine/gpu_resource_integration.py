"""The GPU manager and the frameworks' integrations."""

from dovetail.sdk import (
    TrainingGPUConfig,
    get_gpu_resource_manager,
    get_pytorch_gpu_integration,
    get_tensorflow_gpu_integration,
)

__all__ = [
    "TrainingGPUConfig",
    "get_gpu_resource_manager",
    "get_pytorch_gpu_integration",
    "get_tensorflow_gpu_integration",
]
