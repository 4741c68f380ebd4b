"""The possible findings of an audit, as values."""

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal[
    "ShareOverpromised", "MemoryOverpromised", "TooManyTurns", "ModeConflict", "NotSole",
    "UnknownNode", "UnknownDevice", "WrongNode", "DeviceTwice",
    "NotAsked", "NotBound", "NotAllocated", "BrokenAllocation", "Mismatch", "AllocationWithoutPod",
    "CountOverpromised", "GivenTwice", "BothKinds", "Unreadable",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """One violation.

    `subject` is `node/index` for a device, `namespace/name` for a pod or a job.
    """

    kind: FindingKind
    subject: str
    message: str
