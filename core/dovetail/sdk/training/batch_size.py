"""How many samples fit into a GPU's memory. Pure."""

from typing import Final

from dovetail.sdk.errors import InvalidError

# A fifth stays free for what a program uses in addition: the CUDA context, libraries, fragmentation.
_USABLE: Final = 0.8
_MIB_PER_GB: Final = 1024


def suggest_batch_size(memory_gb: float, per_sample_mib: float, *, model_mib: float = 0.0) -> int:
    """The largest power of two whose samples fit into 0.8 of the memory, with the model. Raises `InvalidError`.

    `per_sample_mib` is what a sample adds in MiB, with its activations and gradients; `model_mib` is what the model
    needs with any batch. GB are nominal, and count as GiB.
    """
    for name, value in (("memory_gb", memory_gb), ("per_sample_mib", per_sample_mib)):
        if not 0 < value < float("inf"):
            raise _invalid(f"{name} {value}: a number above 0 is needed")
    left = memory_gb * _MIB_PER_GB * _USABLE - model_mib
    most = int(left // per_sample_mib)
    if most < 1:
        raise _invalid(
            f"per_sample_mib {per_sample_mib:g}: not one sample fits into the {max(0, left):.0f} MiB that "
            f"{memory_gb:g} GB leave; use a larger GPU or a smaller sample"
        )
    return 1 << (most.bit_length() - 1)


def _invalid(message: str) -> InvalidError:
    return InvalidError(message, status=422, reason="Invalid")
