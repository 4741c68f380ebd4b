"""What the configuration may choose between. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the configuration says; a device may have tenant limits of its own.

    `guard_fraction` is the part of a shared device's memory that may be promised to those that name no guard.
    `memory_specs` are sizes of models in GB by family, in addition to the table of models.
    """

    guard_fraction: float = 0.8
    turns_per_device: int = 4
    training_per_device: int = 1
    inference_per_device: int = 3
    memory_specs: Mapping[str, float] = field(default_factory=dict)


# Which fragmentation term is live: priced headroom, fragmentation gradient descent, best fit, or the best in replays.
FragmentationPolicy = Literal["ph", "fgd", "bestfit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of a score's terms; they need not sum to one."""

    utilization: float = 0.4
    memory: float = 0.3
    cpu: float = 0.2
    fragmentation: float = 0.1


DEFAULT_WEIGHTS: Final = Weights()
