"""How the answers about nodes and devices follow from the inventory, and the figures of a device in words. Pure.

A device that cannot report has none of a figure, and an old figure has its age.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dovetail import names
from dovetail.answers.inventory import DeviceUse, Inventory, NodeUse, enforcing
from dovetail.answers.nodes import (
    DeviceRow,
    InventoryRow,
    NodeRow,
    OtherTenants,
    Runs,
    TenantCounts,
    TenantRow,
    Totals,
)
from dovetail.api.builtin import Node
from dovetail.formats.quantities import mebibytes, milli

# What stands for a figure that there is not.
NONE: Final = "-"
# Whether a reader may see what is in a namespace.
Sees = Callable[[str], bool]


def inventory_row(found: Inventory) -> InventoryRow:
    """The inventory for programs."""
    sums = totals(found.devices)
    return InventoryRow(
        **{name: getattr(sums, name) for name in sums.__struct_fields__},
        scheduler=found.scheduler,
        nodes=[node_row(node) for node in found.nodes.values()],
    )


def totals(uses: Sequence[DeviceUse]) -> Totals:
    """The sums over these devices."""
    gpus, instances = [use for use in uses if not use.is_instance], [use for use in uses if use.is_instance]
    # The driver does not report that of an instance.
    measured = [use.utilization for use in gpus if use.utilization is not None]
    return Totals(
        total_gpus=len(gpus),
        available_gpus=sum(use.available for use in gpus),
        held_gpus=sum(bool(use.holders) for use in gpus),
        total_mig_instances=len(instances),
        available_mig_instances=sum(use.available for use in instances),
        held_mig_instances=sum(bool(use.holders) for use in instances),
        utilization=round(sum(measured) / len(measured), 4) if measured else None,
        memory_used_mib=sum(use.used_mib or 0 for use in uses),
        memory_total_mib=sum(use.device.memory_mib for use in uses),
        tenants=tenant_counts(holder for use in uses for holder in use.holders),
    )


def _everything(_namespace: str) -> bool:
    return True


def node_row(node: NodeUse, *, sees: Sees = _everything) -> NodeRow:
    """The node for a reader; tenants of hidden namespaces are sums."""
    status = node.gpunode.status
    labels = {} if node.node is None else node.node.metadata.labels
    return NodeRow(
        name=node.name,
        takes_work=node.takes_work,
        message=node.reason,
        stale=node.stale,
        pool=labels.get(names.LABEL_POOL, ""),
        rack=node.rack,
        driver_version=status.driver_version,
        runtime_version=status.runtime_version,
        runs="Containers" if node.node is None else runs(node.node),
        cpus=None if node.node is None else host_cpus(node.node),
        host_memory_mib=None if node.node is None else host_memory_mib(node.node),
        enforces=enforcing(status.enforcement),
        enforcement=status.enforcement,
        observed_at=status.observed_at,
        devices=device_rows(node, sees=sees),
    )


def runs(node: Node) -> Runs:
    """How the node runs a job's program."""
    if names.SIMULATED_NODE in node.metadata.annotations:
        return "Nothing"
    return "Processes" if node.status.node_info.container_runtime_version == names.PROCESSES else "Containers"


def host_cpus(node: Node) -> float:
    """The CPUs that pods may get."""
    return milli(node.status.allocatable.get("cpu", "0"), rounding="down") / 1000


def host_memory_mib(node: Node) -> int:
    """The memory that pods may get."""
    return mebibytes(node.status.allocatable.get("memory", "0"), rounding="down")


def device_rows(node: NodeUse, *, sees: Sees = _everything) -> list[DeviceRow]:
    """The node's devices for a reader."""
    measured_at = node.gpunode.status.measured_at or node.gpunode.status.observed_at
    return [_device_row(use, measured_at=measured_at, sees=sees) for use in node.uses]


def _device_row(use: DeviceUse, *, measured_at: str | None, sees: Sees) -> DeviceRow:
    device = use.device
    return DeviceRow(
        node=use.node,
        index=device.index,
        uuid=device.uuid,
        vendor=device.vendor,
        model=device.model,
        mig_profile=device.mig_profile,
        compute_capability=device.compute_capability,
        memory_mib=device.memory_mib,
        used_mib=use.used_mib,
        utilization=use.utilization,
        temperature_celsius=use.temperature_celsius,
        power_watts=use.power_watts,
        measured_at=measured_at if use.is_measured else None,
        stale=bool(use.stale),
        health="Healthy" if use.healthy else "Unhealthy",
        health_reason=use.health_reason,
        cordoned=use.cordoned,
        takes_work=use.takes_work,
        cause=use.unavailable[0].cause if use.unavailable else "",
        message=use.reason,
        available=use.available,
        strangers=len(device.strangers),
        tenants=[holder for holder in use.holders if sees(holder.namespace)],
        others=_others([holder for holder in use.holders if not sees(holder.namespace)]),
    )


def _others(holders: Sequence[TenantRow]) -> OtherTenants | None:
    if not holders:
        return None
    return OtherTenants(
        tenants=len(holders),
        share_milli=sum(holder.share_milli for holder in holders),
        memory_mib=sum(holder.memory_mib for holder in holders),
    )


def tenant_counts(holders: Iterable[TenantRow]) -> TenantCounts:
    """Count holders by their workload."""
    kinds = [holder.workload for holder in holders]
    return TenantCounts(
        training=kinds.count("Training"), inference=kinds.count("Inference"), unspecified=kinds.count(None)
    )


def memory_text(used_mib: int | None, *, memory_mib: int, stale: str) -> str:
    """`812/32768 MiB`: the memory in use and in all; the latter alone for a device that cannot report."""
    total = f"{memory_mib} MiB"
    return total if used_mib is None else _aged(f"{used_mib}/{total}", stale=stale)


def utilization_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`45%`, or `none`."""
    return none if use.utilization is None else _aged(f"{use.utilization:.0%}", stale=use.stale)


def temperature_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`31 C`, or `none`."""
    return none if use.temperature_celsius is None else _aged(f"{use.temperature_celsius} C", stale=use.stale)


def power_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`70 W`, or `none`."""
    return none if use.power_watts is None else _aged(f"{use.power_watts} W", stale=use.stale)


def _aged(text: str, *, stale: str) -> str:
    return f"{text} ({stale} ago)" if stale else text
