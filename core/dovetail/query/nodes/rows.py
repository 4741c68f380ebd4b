"""Nodes and devices as rows of numbers and texts, for programs. Pure."""

from collections.abc import Sequence

import msgspec

from dovetail.api.gpunode import Enforcement
from dovetail.query.nodes.inventory import DeviceUse, Holder, Inventory, NodeSoftware
from dovetail.query.nodes.tenants import TenantCounts, tenant_counts


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A device. None is what its driver does not report.

    index                its index on its node
    model                its model
    uuid                 its UUID
    status               In use by …, Available, cordoned, unmanaged (a foreign process uses it), or unhealthy
    available            whether a job could take the whole device
    holders              the pods that hold it, or shares of it
    memory_used_mib      the memory in use, in MiB
    memory_total_mib     its memory, in MiB
    utilization          how busy it is, from 0 to 1
    temperature_celsius  its temperature, in °C
    power_watts          its power, in W
    compute_capability   CUDA's, such as 9.0; empty: not known
    tenants              its holders by kind
    """

    index: int
    model: str
    uuid: str
    status: str
    available: bool
    holders: Sequence[Holder]
    memory_used_mib: int
    memory_total_mib: int
    utilization: float
    temperature_celsius: int | None
    power_watts: int | None
    compute_capability: str
    tenants: TenantCounts


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose agent reports devices.

    name             its name
    driver_version   the version of its driver; empty: not known
    runtime_version  the newest CUDA that the driver supports, or the vendor's equivalent; empty: not known
    enforcement      what its agent enforces, and why not the rest
    devices          its devices, by index
    """

    name: str
    driver_version: str
    runtime_version: str
    enforcement: Enforcement
    devices: list[DeviceRow]


class InventoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of a cluster.

    scheduler       whether the scheduler runs, in words
    total_gpus      the number of devices
    available_gpus  how many of them a job could take as a whole
    nodes           the nodes, by name
    """

    scheduler: str
    total_gpus: int
    available_gpus: int
    nodes: list[NodeRow]


def inventory_row(found: Inventory) -> InventoryRow:
    """The inventory for programs."""
    return InventoryRow(
        scheduler=found.scheduler,
        total_gpus=len(found.devices),
        available_gpus=sum(device.available for device in found.devices),
        nodes=node_rows(found),
    )


def node_rows(found: Inventory) -> list[NodeRow]:
    """The nodes, by name."""
    return [
        _node_row(name, uses=uses, software=found.software.get(name, NodeSoftware()), namespace=found.namespace)
        for name, uses in found.nodes.items()
    ]


def _node_row(name: str, *, uses: Sequence[DeviceUse], software: NodeSoftware, namespace: str) -> NodeRow:
    return NodeRow(
        name=name,
        driver_version=software.driver,
        runtime_version=software.runtime,
        enforcement=software.enforcement,
        devices=[device_row(use, namespace=namespace) for use in uses],
    )


def device_row(use: DeviceUse, *, namespace: str) -> DeviceRow:
    """The device for a reader of `namespace`."""
    device = use.device
    return DeviceRow(
        index=device.index,
        model=device.model,
        uuid=device.uuid,
        status=use.status(namespace=namespace),
        available=use.available,
        holders=use.holders,
        memory_used_mib=device.used_mib,
        memory_total_mib=device.memory_mib,
        utilization=device.utilization,
        temperature_celsius=device.temperature_celsius,
        power_watts=device.power_watts,
        compute_capability=device.compute_capability,
        tenants=tenant_counts(use.holders),
    )
