"""One look at a node: asks the provider and the features and builds a report.

Writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_kind import serving
from dovetail.gpu.device_plugins import Vendors
from dovetail.logs import get_logger
from dovetail_agent.devices.assignments import given
from dovetail_agent.devices.faults import Past, with_lost, with_open_faults
from dovetail_agent.devices.model import Inventory, InventoryUnreadable, Provider, Sample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.feature.runner import FeatureRunner
from dovetail_agent.report import node_status

log = get_logger(__name__)

_OURS: Final = "nvidia"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The result of one look. Without inventory and sample, the devices could not be read."""

    status: GPUNodeStatus
    tenants: tuple[NodeTenant, ...]
    inventory: Inventory | None = None
    sample: Sample | None = None


class Collector:
    """Looks at nodes through a provider and the features."""

    def __init__(self, provider: Provider, *, vendors: Vendors, beside: FeatureRunner) -> None:
        self._provider = provider
        self._vendors = vendors
        self._beside = beside
        self._said: set[str] = set()

    def collect(
        self,
        node: Node,
        *,
        gpunode: GPUNode | None,
        tenants: Sequence[NodeTenant],
        now: datetime,
        answers: int | None = None,
    ) -> tuple[Seen, Look]:
        """Return what was seen, and what to report of it."""
        seen = Seen(node=node, now=now, gpunode=gpunode, tenants=tuple(tenants), answers=answers)
        provider, past = self._provider, Past.from_gpunode(gpunode, boot_id=node.status.node_info.boot_id)
        try:
            answered = provider.inventory(node, previous=seen.previous)
            inventory = self._given_out(with_lost(answered, past=past), node=node)
            seen = replace(seen, inventory=inventory)
            assignments = self._assignments(seen)
            tenants = given(seen.tenants, assignments=assignments, inventory=inventory)
            sample = provider.sample(answered, node=node, tenants=tenants, now=now)
        except InventoryUnreadable as error:
            seen = replace(seen, inventory=None, problem=str(error))
            status = node_status.unreadable(
                str(error), reason=error.reason, provider=provider.name, previous=seen.previous, now=now
            )
        else:
            sample = with_open_faults(sample, answered=answered, inventory=inventory, past=past)
            seen = replace(seen, tenants=tuple(tenants), sample=sample)
            status = self._readable(seen, sample=sample, assignments=assignments)
        status = self._beside.amend(status, seen=seen)
        return seen, Look(status=status, tenants=seen.tenants, inventory=seen.inventory, sample=seen.sample)

    def _given_out(self, inventory: Inventory, *, node: Node) -> Inventory:
        """Return only NVIDIA's devices for a managed node: pods get allocations by its runtime."""
        ours = tuple(device for device in inventory.devices if device.vendor == _OURS)
        left = len(inventory.devices) - len(ours)
        if not left or not serving(node, vendors=self._vendors).managed:
            return inventory
        if node.metadata.name not in self._said:
            self._said.add(node.metadata.name)
            log.warning(
                "devices of other vendors on a managed node are left out", node=node.metadata.name, devices=left
            )
        return replace(inventory, devices=ours)

    def _readable(self, seen: Seen, *, sample: Sample, assignments: Sequence[Assignment]) -> GPUNodeStatus:
        return node_status.readable(
            _there(seen.inventory),
            sample=sample,
            provider=self._provider.name,
            boot_id=seen.node.status.node_info.boot_id,
            tenants=seen.tenants,
            previous=seen.previous,
            now=seen.now,
            assignments=assignments,
        )

    def _assignments(self, seen: Seen) -> Sequence[Assignment]:
        assigned = self._beside.assignments(seen)
        if assigned is not None:
            return assigned
        if not serving(seen.node, vendors=self._vendors).resource:
            return []
        reported = seen.previous.assignments if seen.previous else []
        return self._provider.assignments(
            _there(seen.inventory), node=seen.node, tenants=seen.tenants, previous=reported
        )


def _there(inventory: Inventory | None) -> Inventory:
    assert inventory is not None, "read before"
    return inventory
