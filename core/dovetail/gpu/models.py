"""GPU models: one spelling for the many that drivers, labels, traces and users write. Pure."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Final

VENDORS: Final = ("nvidia", "amd", "intel", "ascend")

_BRANDS: Final = frozenset(
    {
        "NVIDIA", "TESLA", "GEFORCE", "QUADRO", "AMD", "RADEON", "INSTINCT", "INTEL", "HUAWEI", "ASCEND",
        "DATA", "CENTER", "GPU", "GRAPHICS", "GENERATION",
    }
)  # fmt: skip
_FORM: Final = re.compile(r"SXM\d*|PCIE|NVL\d*|OAM|HBM\d*E?|MIG")
# Vendors count in GB or GiB, and reports are rounded.
_ROUNDING_GB: Final = 0.5
# The driver and error correction take up to a tenth of a card (24 GB: 22.5 GiB); less is a part of one.
_LEAST_REPORTED: Final = 0.8
_NO_SPECS: Final[Mapping[str, float]] = MappingProxyType({})
_MEMORY: Final = re.compile(r"([0-9]{1,6})(?:GB|G)")
_SHORT_MEMORY: Final = re.compile(r"([A-Z]+[0-9]+[A-Z]*)M([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Model:
    """A model as a family and, where the name has it, its memory in GB.

    `V100M32` is `Model("V100", 32)`.
    """

    family: str
    memory_gb: int | None = None

    def admits(self, actual: "Model") -> bool:
        """Whether a request for this model accepts `actual`.

        `V100` accepts both memory sizes, `V100M32` only 32 GB.
        """
        return self.family == actual.family and self.memory_gb in {None, actual.memory_gb}


# Names come from devices and also from requests, so the cache is bounded.
@lru_cache(maxsize=4096)
def normalise(name: str) -> Model:
    """The model of a name.

    `Tesla V100-SXM2-32GB`, `V100M32` and `v100` are all of family `V100`. An unknown name is its own family, in upper
    case without brand, form factor and separators.
    """
    memory: int | None = None
    kept: list[str] = []
    for word in re.split(r"[\s\-_/]+", name.upper()):
        if size := _MEMORY.fullmatch(word):
            memory = int(size[1])
        elif word not in _BRANDS and not _FORM.fullmatch(word):
            kept.append(word)
    family = "".join(kept) or name.upper()
    if short := _SHORT_MEMORY.fullmatch(family):
        family, memory = short[1], int(short[2])
    return Model(_known_family(family), memory)


def vendor_of(name: str) -> str | None:
    """The vendor of a model from the table, or None for an unknown model."""
    entry = _table().get(normalise(name).family)
    return entry[0] if entry else None


def by_family(specs: Mapping[str, float]) -> dict[str, float]:
    """GB by model name as GB by family; the last name of a family counts."""
    return {normalise(name).family: size for name, size in specs.items()}


def memory_mib(name: str, *, specs: Mapping[str, float] = _NO_SPECS) -> int | None:
    """Memory of one device in MiB, from the name, else `specs`, else the table; None for an unknown model.

    `specs` has the usual size in GB by family, as configured.
    """
    sizes = _sizes(normalise(name), specs=specs)
    return int(sizes[0] * 1024) if sizes else None


def nominal_gb(name: str, *, memory_mib: int, specs: Mapping[str, float] = _NO_SPECS) -> int:
    """The size in whole GB under which a device with this name and measured memory is sold.

    The driver keeps some of it: a card of 80 GB may report 79.2 GiB. Without a size in the name, in `specs` (GB by
    family) and in the table, the measured one, rounded up.
    """
    measured = memory_mib / 1024
    for size in sorted(_sizes(normalise(name), specs=specs)):
        if size * _LEAST_REPORTED <= measured <= size + _ROUNDING_GB:
            return int(size)
    return math.ceil(measured - _ROUNDING_GB)


def model_of(name: str, *, memory_mib: int, specs: Mapping[str, float] = _NO_SPECS) -> Model:
    """The model of a device with this name and measured memory, always with its nominal size."""
    return Model(normalise(name).family, nominal_gb(name, memory_mib=memory_mib, specs=specs))


def known_families() -> tuple[str, ...]:
    """Every family of the table, in its order."""
    return tuple(_table())


def _sizes(model: Model, *, specs: Mapping[str, float]) -> list[float]:
    """The sizes of a model in GB, the usual one first; empty for an unknown model."""
    if model.memory_gb is not None:
        return [model.memory_gb]
    entry = _table().get(model.family)
    configured = [specs[model.family]] if model.family in specs else []
    return [*configured, *(entry[1] if entry else ())]


def _known_family(family: str) -> str:
    # Drivers write "RTX A6000", "GeForce RTX 3090" and "Ascend910B"; users write A6000, RTX3090 or 3090, and 910B.
    table = _table()
    for candidate in (family, family.removeprefix("RTX"), f"RTX{family}", family.removeprefix("ASCEND")):
        if candidate in table:
            return candidate
    return family


@cache
def _table() -> dict[str, tuple[str, tuple[int, ...]]]:
    text = resources.files("dovetail").joinpath("data/gpu_models.toml").read_text(encoding="utf-8")
    return {
        family: (vendor, tuple(sizes))
        for vendor, families in tomllib.loads(text).items()
        for family, sizes in families.items()
    }
