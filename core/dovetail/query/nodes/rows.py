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
    mig_profile          the profile of a MIG instance, such as 1g.10gb; empty for a GPU
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
    mig_profile: str


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

    scheduler                whether the scheduler runs, in words
    total_gpus               the number of GPUs; one that is split into MIG instances is none of them
    available_gpus           how many of them a job could take as a whole
    total_mig_instances      the number of MIG instances
    available_mig_instances  how many of them a job could take
    nodes                    the nodes, by name
    """

    scheduler: str
    total_gpus: int
    available_gpus: int
    total_mig_instances: int
    available_mig_instances: int
    nodes: list[NodeRow]


def inventory_row(found: Inventory) -> InventoryRow:
    """The inventory for programs."""
    gpus = [use for use in found.devices if not use.is_instance]
    instances = [use for use in found.devices if use.is_instance]
    return InventoryRow(
        scheduler=found.scheduler,
        total_gpus=len(gpus),
        available_gpus=sum(use.available for use in gpus),
        total_mig_instances=len(instances),
        available_mig_instances=sum(use.available for use in instances),
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
        mig_profile=device.mig_profile,
    )
