"""What a training asks for: `TrainingGPUConfig`, and `gpu_config` of an algorithm's parameters. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

from dovetail.decoding import UnreadableError, convert
from dovetail.sdk.errors import InvalidError

Framework = Literal["pytorch", "tensorflow", "none"]
_MOST_GPUS: Final = 9999
_MOST_GB: Final = 4096


@dataclass(slots=True)
class TrainingGPUConfig:
    """GPUs for a training. A field can be assigned again, as scripts do after a refusal. Raises `InvalidError`.

    - `gpu_count`: number of GPUs
    - `gpu_type`: the model, such as V100; None is any
    - `memory_gb`: the least nominal memory of each GPU in GB; None is any
    - `distributed_training`: the GPUs may be on several nodes
    - `mixed_precision`: compute in 16 bits where the framework can
    - `gpu_memory_fraction`: the part of each GPU's memory that the process may use; None is all of it
    """

    gpu_count: int = 1
    gpu_type: str | None = None
    memory_gb: float | None = None
    distributed_training: bool = False
    mixed_precision: bool = False
    gpu_memory_fraction: float | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        # Also called by __init__, so that each value is checked in one place.
        _check(name, value=value)
        object.__setattr__(self, name, value)

    def as_request(self) -> dict[str, Any]:
        """The request as v1 takes it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUSettings:
    """`gpu_config` as a whole: whether GPUs are wanted, which, for what, and what happens without."""

    enabled: bool
    request: TrainingGPUConfig
    framework: Framework | None
    cpu_fallback: bool


@dataclass(slots=True)
class _Known(TrainingGPUConfig):
    enabled: bool = False
    framework: Framework | None = None
    cpu_fallback: bool = False


def settings_of(algorithm_params: Mapping[str, Any]) -> GPUSettings:
    """The settings in `algorithm_params["gpu_config"]`; without one, no GPU is wanted. Raises `InvalidError`.

    Fields that it does not know are ignored, as scripts of before may have more.
    """
    given = algorithm_params.get("gpu_config") or {}
    try:
        known = convert(given, as_type=_Known)
    except UnreadableError as error:
        raise _invalid(f"gpu_config {given!r} cannot be read: {error.problem}") from error
    request = TrainingGPUConfig(**{field.name: getattr(known, field.name) for field in fields(TrainingGPUConfig)})
    return GPUSettings(
        enabled=known.enabled, request=request, framework=known.framework, cpu_fallback=known.cpu_fallback
    )


def _check(name: str, *, value: Any) -> None:
    """Raise `InvalidError` for a value that the field `name` cannot have."""
    if value is None:
        return
    if name == "gpu_count" and not 1 <= value <= _MOST_GPUS:
        raise _invalid(f"gpu_count {value}: whole numbers from 1 to {_MOST_GPUS} are allowed")
    if name == "memory_gb" and not 0 <= value <= _MOST_GB:
        raise _invalid(f"memory_gb {value:g}: 0 to {_MOST_GB} GB are allowed")
    if name == "gpu_memory_fraction" and not 0 < value <= 1:
        raise _invalid(f"gpu_memory_fraction {value:g}: above 0 to 1 is allowed")


def _invalid(message: str) -> InvalidError:
    return InvalidError(message, status=422, reason="Invalid")
