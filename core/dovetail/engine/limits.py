"""How much of a device may be promised, and to how many. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the configuration says; a device may have tenant limits of its own.

    `guard_fraction` is the part of a shared device's memory that may be promised to those that name no guard.
    """

    guard_fraction: float = 0.8
    turns_per_device: int = 4
    training_per_device: int = 1
    inference_per_device: int = 3
