"""What quotas count: GPUs, their memory, and GPUs by model; units and words for each. Pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from dovetail.gpu.models import normalise
from dovetail.gpu.request import WHOLE_MILLI

# The first resource of every tree. The others are memory and models. These two have a character that no model's name
# has: a quota may name a model `GPUs` or `memory`, by mistake or not.
GPUS: Final = "GPUs:"
MEMORY: Final = "memory:"
GIB_MIB: Final = 1024


def unit_of(resource: str) -> int:
    """How much of a resource is one GPU, or one GiB: thousandths of a GPU, or MiB."""
    return GIB_MIB if resource == MEMORY else WHOLE_MILLI


@lru_cache(maxsize=4096)
def model_name(model: str) -> str:
    """The resource of a quota's model, one for all its spellings: `A100` for a100, `A100-80GB` for `a100 80GB`."""
    known = normalise(model)
    return known.family if known.memory_gb is None else f"{known.family}-{known.memory_gb}GB"


def includes(resources: Sequence[str]) -> tuple[int | None, ...]:
    """For each resource the index of the nearest one that counts all of it too; None for GPUs and memory.

    GPUs count all models, and A100 counts A100-80GB.
    """
    at = {resource: index for index, resource in enumerate(resources)}
    return tuple(_included_by(each, at=at) for each in resources)


def _included_by(resource: str, *, at: Mapping[str, int]) -> int | None:
    if resource in {GPUS, MEMORY}:
        return None
    family = normalise(resource).family
    return at[GPUS] if resource == family else at.get(family, at[GPUS])


@lru_cache(maxsize=4096)
def counts_model(model: str, *, requested: str) -> bool:
    """Whether a quota's model counts a request for another spelling of it: A100 counts a100 and A100-80GB."""
    return bool(requested) and normalise(model).admits(normalise(requested))


def amount_text(amount: int | None, *, of: str) -> str:
    """An amount of a resource in words: `8 GPUs`, `8 GPUs of model A100`, `640 GiB of device memory`."""
    number = (amount or 0) / unit_of(of)
    if of == MEMORY:
        return f"{number:g} GiB of device memory"
    gpus = f"{number:g} GPU" if number == 1 else f"{number:g} GPUs"
    return gpus if of == GPUS else f"{gpus} of model {of}"


def number_text(amount: int | None, *, of: str) -> str:
    """The same without what a sentence has named already: `8 GPUs`, `640 GiB`."""
    return amount_text(amount, of=of).partition(" of ")[0]


def bare_text(amount: int, *, of: str) -> str:
    """The number of GPUs alone; memory keeps its unit: `8`, `640 GiB`."""
    return number_text(amount, of=of) if of == MEMORY else f"{amount / unit_of(of):g}"
