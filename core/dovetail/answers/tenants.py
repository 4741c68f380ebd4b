"""The tenants of devices by kind: training, inference, or neither. Pure."""

from collections.abc import Iterable

import msgspec

from dovetail.answers.inventory import Holder


class TenantCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tenants by the workload that they count as for tenant limits."""

    training: int = 0
    inference: int = 0
    unspecified: int = 0

    def __str__(self) -> str:
        """The kinds that there are, such as `1 training, 2 inference`; empty without any."""
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def tenant_counts(holders: Iterable[Holder]) -> TenantCounts:
    """Count holders by their workload."""
    kinds = [holder.workload for holder in holders]
    return TenantCounts(
        training=kinds.count("Training"), inference=kinds.count("Inference"), unspecified=kinds.count(None)
    )
