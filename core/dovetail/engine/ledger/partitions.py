"""The ledgers of MIG instances: for each profile one whose devices are the instances of that profile.

Such a ledger is the original one seen by a request of the profile: the same nodes and the same claims, other devices.
So all rules for whole devices hold for instances, no request for a GPU meets an instance, and none for an instance
meets a GPU. It is brought up to date when it is asked for; a cluster without such requests never has one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dovetail.engine.ledger.node_table import NOTHING_READ
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.gpu import mig
from dovetail.gpu.models import Model, model_of

if TYPE_CHECKING:
    from dovetail.engine.ledger.ledger import Ledger

# In place of a profile that no node has: one ledger without devices answers for all of these.
_NOWHERE: Final = "none"


@dataclass(slots=True)
class _Partition:
    ledger: "Ledger"
    position: int = NOTHING_READ


class Partitions:
    """The ledgers of the profiles that were asked for, over one original."""

    def __init__(self) -> None:
        self._known: dict[str, _Partition] = {}

    def of(self, profile: str, *, original: "Ledger") -> "Ledger":
        """The ledger of a profile as of now. The original is an argument: it owns this, and must not be kept alive."""
        there = profile if _has(original, profile=profile) else _NOWHERE
        if there not in self._known:
            self._known[there] = _Partition(original.partition(there))
        found = self._known[there]
        if found.position != original.changes:
            found.ledger.follow(original, rows=original.touched_since(found.position))
            found.position = original.changes
        return found.ledger


def _has(original: "Ledger", *, profile: str) -> bool:
    # Ends at the first instance: a large cluster has tens of thousands.
    return any(device.mig == profile for name in original.partitioned() for device in original.instances(name))


def profiles(ledger: "Ledger") -> list[str]:
    """The profiles of MIG instances that requests can have and the existing nodes have, smallest first."""
    found = {device.mig for name in ledger.partitioned() for device in ledger.instances(name)}
    named = (profile for profile in found if mig.normalised(profile))
    return sorted(named, key=lambda profile: (mig.milli_of(profile), mig.memory_mib(profile), profile))


def seen_by(facts: NodeFacts, *, profile: str) -> NodeFacts:
    """A node as a request for instances of a profile sees it."""
    offered = facts.instances.get(profile, 0)
    return replace(facts, resource=mig.resource_of(profile) if offered else "", offered=offered)


def is_gpu(device: DeviceFacts) -> bool:
    """Whether it is a GPU and not an instance of one."""
    return not device.mig


def of_profile(devices: Iterable[DeviceFacts], *, profile: str) -> tuple[DeviceFacts, ...]:
    """The instances of a profile."""
    return tuple(device for device in devices if device.mig == profile)


def instances_milli(ledger: "Ledger", *, models: Sequence[Model] = ()) -> list[tuple[int, int]]:
    """The compute of the MIG instances of existing nodes in thousandths of a GPU, and that of the healthy ones.

    First of all of them, then of those that a request for each of these models can have.
    """
    # A large cluster has tens of thousands of instances, of few kinds.
    kinds = Counter(
        (device.mig, device.model, device.memory_mib, device.healthy)
        for name in ledger.partitioned()
        for device in ledger.instances(name)
    )
    specs = ledger.limits.memory_specs
    counts = Counter[tuple[str, Model, bool]]()
    for (profile, name, memory_mib, healthy), count in kinds.items():
        counts[profile, model_of(name, memory_mib=memory_mib, specs=specs), healthy] += count
    return [
        (_compute_milli(counts, model=model), _compute_milli(counts, model=model, healthy=True))
        for model in (None, *models)
    ]


def _compute_milli(counts: Mapping[tuple[str, Model, bool], int], *, model: Model | None, healthy: bool = False) -> int:
    """The compute of instances in thousandths of a GPU; those of a profile that no request can have count for none."""
    by_profile = Counter[str]()
    for (profile, actual, is_healthy), count in counts.items():
        if (model is None or model.admits(actual)) and (is_healthy or not healthy):
            by_profile[profile] += count
    return sum(mig.milli_of(profile, count=count) for profile, count in by_profile.items() if mig.normalised(profile))
