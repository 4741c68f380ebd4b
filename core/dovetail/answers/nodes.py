"""The answers about nodes and devices: their types, and how they follow from the inventory. Pure."""

from collections.abc import Callable, Sequence
from typing import Literal

from dovetail import names
from dovetail.answers import Row
from dovetail.answers.inventory import DeviceUse, Holder, Inventory, NodeUse, enforcing
from dovetail.answers.tenants import TenantCounts, tenant_counts
from dovetail.api.gpujob import Workload
from dovetail.api.gpunode import Enforcement
from dovetail.engine.model.availability import Cause

# Whether a reader may see what is in a namespace.
Sees = Callable[[str], bool]


class TenantRow(Row, frozen=True, kw_only=True):
    """A pod that holds a device or a share of it; `job` is its job's number.

    `usedMiB` is what its processes use of the device's memory, null where processes cannot be attributed to pods.
    """

    namespace: str
    pod: str
    job: int | None
    share_milli: int
    memory_mib: int
    workload: Workload | None
    used_mib: int | None


class OtherTenants(Row, frozen=True, kw_only=True):
    """The tenants of a device whose namespaces you may not list, summed up."""

    tenants: int
    share_milli: int
    memory_mib: int


class DeviceRow(Row, frozen=True, kw_only=True):
    """A device. `takesWork` says whether it takes new work; if not, `cause` and `message` say why, in one sentence.

    `available` says whether a job could take it whole now. `usedMiB`, `utilization`, `temperatureCelsius` and
    `powerWatts` are of `measuredAt`; they are null for a device that cannot report, and where its driver reports none.
    Where `stale`, they are too old to count. `migProfile` is the profile of a MIG instance, such as `1g.10gb`; empty
    for a GPU.
    """

    node: str
    index: int
    uuid: str
    vendor: str
    model: str
    mig_profile: str
    compute_capability: str
    memory_mib: int
    used_mib: int | None
    utilization: float | None
    temperature_celsius: int | None
    power_watts: int | None
    measured_at: str | None
    stale: bool
    health: Literal["Healthy", "Unhealthy"]
    health_reason: str
    cordoned: bool
    takes_work: bool
    cause: Cause | Literal[""]
    message: str
    available: bool
    strangers: int
    tenants: list[TenantRow]
    others: OtherTenants | None


class NodeRow(Row, frozen=True, kw_only=True):
    """A node with GPUs. `takesWork` says whether one of its devices takes new work; if not, `message` says why.

    `stale` says why the figures of its devices do not count; empty where they do. `rack` is its domain of the network's
    level of this name; empty without one.
    """

    name: str
    takes_work: bool
    message: str
    stale: str
    pool: str
    rack: str
    driver_version: str
    runtime_version: str
    enforces: str
    enforcement: Enforcement
    observed_at: str | None
    devices: list[DeviceRow]


class Totals(Row, frozen=True, kw_only=True):
    """Sums over devices.

    total_gpus                the number of GPUs; one that is split into MIG instances is none of them
    available_gpus            how many of them a job could take as a whole
    held_gpus                 how many of them pods hold, also as shares
    total_mig_instances       the number of MIG instances
    available_mig_instances   how many of them a job could take
    held_mig_instances        how many of them pods hold
    utilization               the mean utilization of the GPUs that report it, from 0 to 1; None without any
    memory_used_mib           the memory of GPUs and instances in use, in MiB, where they report it
    memory_total_mib          their memory, in MiB
    tenants                   their holders by kind
    """

    total_gpus: int
    available_gpus: int
    held_gpus: int
    total_mig_instances: int
    available_mig_instances: int
    held_mig_instances: int
    utilization: float | None
    memory_used_mib: int
    memory_total_mib: int
    tenants: TenantCounts


class InventoryRow(Totals, frozen=True, kw_only=True):
    """All devices of a cluster: their sums, whether the scheduler runs, in words, and the nodes by name."""

    scheduler: str
    nodes: list[NodeRow]


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
        enforces=enforcing(status.enforcement),
        enforcement=status.enforcement,
        observed_at=status.observed_at,
        devices=device_rows(node, sees=sees),
    )


def device_rows(node: NodeUse, *, sees: Sees = _everything) -> list[DeviceRow]:
    """The node's devices for a reader."""
    measured_at = node.gpunode.status.measured_at or node.gpunode.status.observed_at
    return [_device_row(use, measured_at=measured_at, sees=sees) for use in node.uses]


def _device_row(use: DeviceUse, *, measured_at: str | None, sees: Sees) -> DeviceRow:
    device = use.device
    used = {each.uid: each.used_mib for each in device.tenants} if use.is_measured else {}
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
        tenants=[_tenant(holder, used_mib=used.get(holder.uid)) for holder in use.holders if sees(holder.namespace)],
        others=_others([holder for holder in use.holders if not sees(holder.namespace)]),
    )


def _tenant(holder: Holder, *, used_mib: int | None) -> TenantRow:
    return TenantRow(
        namespace=holder.namespace,
        pod=holder.pod,
        job=holder.job,
        share_milli=holder.share_milli,
        memory_mib=holder.memory_mib,
        workload=holder.workload,
        used_mib=used_mib,
    )


def _others(holders: Sequence[Holder]) -> OtherTenants | None:
    if not holders:
        return None
    return OtherTenants(
        tenants=len(holders),
        share_milli=sum(holder.share_milli for holder in holders),
        memory_mib=sum(holder.memory_mib for holder in holders),
    )
