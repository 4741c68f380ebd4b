"""The possible findings of an audit, as values."""

from dataclasses import dataclass
from typing import Final, Literal

FindingKind = Literal[
    "ShareOverpromised", "MemoryOverpromised", "TooManyTurns", "ModeConflict", "NotSole",
    "UnknownNode", "UnknownDevice", "WrongNode", "DeviceTwice",
    "NotAsked", "NotBound", "NotAllocated", "BrokenAllocation", "Mismatch", "AllocationWithoutPod",
    "HoldsMoreThanAsked", "AboveQuota", "CapacityWithheld", "WaitsThoughItFits", "PreemptionUnused",
    "CountOverpromised", "GivenTwice", "BothKinds", "Unreadable",
]  # fmt: skip

# What the programs put right a moment after a change of the objects: such a finding counts only once it
# has lasted, because the objects do not say since when it holds.
LAGGING: Final[frozenset[FindingKind]] = frozenset(
    {
        "AllocationWithoutPod", "HoldsMoreThanAsked", "AboveQuota", "CapacityWithheld", "WaitsThoughItFits",
        "PreemptionUnused",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """One violation.

    `subject` is `node/index` for a device, `namespace/name` for a pod or a job.
    """

    kind: FindingKind
    subject: str
    message: str
