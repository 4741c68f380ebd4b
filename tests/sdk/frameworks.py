"""Set a real framework up with a gateway's settings: python -m tests.sdk.frameworks pytorch|tensorflow URL TOKEN.

Runs in an interpreter that has the framework. Prints one JSON object.
"""

import asyncio
import json
import sys
from typing import Any

from dovetail.sdk import AlgorithmTrainingEngine, TrainingConfig, TrainingGPUConfig, run_with_gpu
from dovetail.sdk.aio.manager import AsyncGPUResourceManager
from dovetail.sdk.blocking.manager import GPUResourceManager
from dovetail.sdk.integrations import PyTorchGPUIntegration, TensorFlowGPUIntegration

SHAPE = {"type": "mlp", "input_dim": 2, "hidden_units": [8, 4], "output_dim": 3}
WANTED = TrainingGPUConfig(gpu_count=1, gpu_type="V100", mixed_precision=True, gpu_memory_fraction=0.5)
ROWS = [[float(x), float(y)] for x in range(8) for y in range(8)]
CLASSES = [int(x > y) for x, y in ROWS]


def pytorch(manager: GPUResourceManager) -> dict[str, Any]:
    import torch

    integration = PyTorchGPUIntegration(manager)
    setup = integration.setup_pytorch_gpu(WANTED)
    model = integration.create_pytorch_model_with_gpu(SHAPE, WANTED)
    with setup.autocast():
        output = model(torch.zeros(1, 2, device=setup.device))
    widths = [list(layer.weight.shape) for layer in model if hasattr(layer, "weight")]
    return {"dtype": str(output.dtype), "widths": widths, "device": setup.device.type, "gpus": setup.gpus}


def tensorflow(manager: GPUResourceManager) -> dict[str, Any]:
    import tensorflow as tf

    integration = TensorFlowGPUIntegration(manager)
    setup = integration.setup_tensorflow_gpu(WANTED)
    model = integration.create_tensorflow_model_with_gpu(SHAPE, WANTED)
    output = model(tf.zeros((1, 2)))
    return {
        "policy": tf.keras.mixed_precision.global_policy().name,
        "dtype": output.dtype.name,
        "hidden": model.layers[0].compute_dtype,
        "widths": [list(layer.kernel.shape) for layer in model.layers],
        "gpus": setup.gpus,
    }


async def trained(framework: str, *, url: str, token: str) -> list[float]:
    """The losses of a small training on an allocation of the gateway."""
    gpus = {"enabled": True, "gpu_count": 1, "framework": framework}
    config = TrainingConfig("small", {"epochs": 5, "learning_rate": 0.05, "gpu_config": gpus})
    async with AsyncGPUResourceManager(url, token=token) as manager:
        found = await AlgorithmTrainingEngine(manager=manager).train_algorithm("mlp", config, (ROWS, CLASSES))
    losses: list[float] = found.losses
    return losses


def why_cpu(framework: str, *, url: str, token: str) -> str:
    """What a training hears if its GPUs are on another node."""
    params = {"gpu_config": {"enabled": True, "framework": framework}}
    with GPUResourceManager(url, token=token) as manager:
        return run_with_gpu(params, lambda device: device.why_cpu, manager=manager)


def main(framework: str, *, url: str, token: str) -> None:
    with GPUResourceManager(url, token=token) as manager:
        shown = {"pytorch": pytorch, "tensorflow": tensorflow}[framework](manager)
    losses = asyncio.run(trained(framework, url=url, token=token))
    why = why_cpu(framework, url=url, token=token)
    print(json.dumps({**shown, "losses": losses, "why": why}))


if __name__ == "__main__":
    main(sys.argv[1], url=sys.argv[2], token=sys.argv[3])
