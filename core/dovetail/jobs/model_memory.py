"""Device memory that a model needs, from its number of parameters and the batch size. Pure.

    training    CUDA context + 16 bytes a parameter + batch size x sample
    inference   CUDA context +  4 bytes a parameter + batch size x sample

Training with Adam keeps 16 bytes a parameter: weights, gradients and two moments in 32 bits, or in mixed precision
2 + 2 bytes and 12 for the optimizer's copies (Rajbhandari et al., ZeRO, 2020, section 3.1). Inference keeps the weights
alone. What a sample adds depends on the architecture and not on the parameters. Where it is not given, it counts as
much as the weights in training, and a tenth of them in inference, which frees the activations of each layer.
"""

from typing import Final

from dovetail.api.gpujob import MemoryRequest, Workload

_MIB: Final = 1 << 20
# The size of a context with its kernels on current GPUs: 300 to 500 MiB.
CONTEXT_MIB: Final = 512
_WEIGHT_BYTES: Final = 4
_TRAINING_BYTES: Final = 16
_INFERENCE_ACTIVATIONS: Final = 10


def memory_of_model(memory: MemoryRequest, *, workload: Workload | None) -> int | None:
    """The MiB that a worker needs on each device; None without a number of parameters.

    A job without a workload counts as training, which needs more.
    """
    if memory.parameters is None:
        return None
    weights = memory.parameters * _WEIGHT_BYTES
    inference = workload == "Inference"
    kept = weights if inference else memory.parameters * _TRAINING_BYTES
    sample = weights // (_INFERENCE_ACTIVATIONS if inference else 1)
    if memory.sample_mib is not None:
        sample = memory.sample_mib * _MIB
    return CONTEXT_MIB - (-(kept + (memory.batch_size or 1) * sample) // _MIB)
