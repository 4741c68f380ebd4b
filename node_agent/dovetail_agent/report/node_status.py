"""Builds a GPUNode status from inventory, sample and promises. Pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, Device, Fault, GPUNodeStatus, TenantUse
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import Condition, OwnerReference, find_condition
from dovetail.gpu.device_plugins import card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.jobs.device_totals import carried_on, seconds_since
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Sample
from dovetail_agent.tenants import promised_mib, promised_milli

READY: Final = "Ready"
# The provider whose devices do not exist: `SimulatedProvider.name`.
SIMULATED: Final = "simulated"
_RATIO_DIGITS: Final = 2


def readable(
    inventory: Inventory,
    *,
    sample: Sample,
    provider: str,
    tenants: Sequence[NodeTenant],
    previous: GPUNodeStatus | None,
    now: datetime,
    assignments: Sequence[Assignment] = (),
    boot_id: str = "",
) -> GPUNodeStatus:
    """Return the status of a node whose devices can be read.

    `previous` is the report before: it has the time at which a condition changed, and the totals so far.
    """
    before = {device.uuid: device for device in previous.devices} if previous else {}
    passed = seconds_since(previous.observed_at if previous else None, now=now)
    pairs = list(zip(inventory.devices, sample.devices, strict=True))
    devices = [
        _device(info, sample=state, tenants=tenants, before=before.get(info.uuid), seconds=passed)
        for info, state in pairs
    ]
    unhealthy = sum(1 for _, state in pairs if state.unhealthy_reason)
    message = f"{len(pairs)} devices, {unhealthy} unhealthy" if unhealthy else f"{len(pairs)} devices, all healthy"
    return GPUNodeStatus(
        observed_at=timestamp(now),
        measured_at=timestamp(sample.measured_at or now),
        boot_id=boot_id,
        provider=provider,
        driver_version=inventory.driver_version,
        runtime_version=inventory.runtime_version,
        enforcement=inventory.enforcement,
        cpu_utilization=_quantised(sample.cpu_utilization),
        memory_utilization=_quantised(sample.memory_utilization),
        gpus=len(devices),
        free=_free(devices, tenants=tenants, assignments=assignments),
        devices=devices,
        assignments=list(assignments),
        conditions=[_ready("True", reason="DevicesRead", message=message, previous=previous, now=now)],
    )


def unreadable(
    problem: str,
    *,
    provider: str,
    previous: GPUNodeStatus | None,
    now: datetime,
    reason: str = "InventoryUnreadable",
) -> GPUNodeStatus:
    """Return the status of a node whose devices cannot be read: the last known ones, and why.

    No component counts on them. If the provider changes to or from the simulated one, the earlier devices are left out.
    """
    condition = _ready("False", reason=reason, message=problem, previous=previous, now=now)
    kept = previous or GPUNodeStatus()
    if SIMULATED in (kept.provider, provider) and kept.provider != provider:
        kept = GPUNodeStatus()
    free = "0" if kept.devices else ""
    return msgspec.structs.replace(
        kept, observed_at=timestamp(now), provider=provider, free=free, conditions=[condition]
    )


def owner_of(node: Node) -> OwnerReference:
    """The owner reference that deletes a GPUNode with its Node."""
    return OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)


def applied_object(node: Node) -> dict[str, Any]:
    """The apply body that creates a GPUNode, or assigns it to a recreated Node of the same name."""
    metadata = {"name": node.metadata.name, "ownerReferences": [owner_of(node)]}
    return {"metadata": metadata}


def written_status(status: GPUNodeStatus) -> dict[str, Any]:
    """The status as it replaces the one before. Unavailable figures are left out, so that no old one stays."""
    values = msgspec.to_builtins(status)
    for name in ("devices", "reshapable"):
        values[name] = [_without_none(each) for each in values[name]]
    return _without_none(values)


def summary(status: GPUNodeStatus) -> str:
    """Describe a node's devices in one line for the log, or why they cannot be read. Omits load."""
    ready = find_condition(status.conditions, type=READY)
    if ready is not None and ready.status != "True":
        return ready.message
    kinds = Counter((device.model, device.memory_mib) for device in status.devices)
    broken = [
        f"device {device.index} is unhealthy: {device.health_reason}"
        for device in status.devices
        if device.health == "Unhealthy"
    ]
    return "; ".join([", ".join(f"{count} x {model} ({mib} MiB)" for (model, mib), count in kinds.items()), *broken])


def facts(device: Device) -> dict[str, object]:
    """A device's fields for the log."""
    return _without_none(msgspec.structs.asdict(device))


def timestamp(now: datetime) -> str:
    """Format a time in RFC 3339 to the second, in UTC."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def foreign_mib(sample: DeviceSample, *, promised: dict[str, int]) -> int:
    """Return the MiB in use beyond promises: max(0, used - sum of min(use, promise) by tenant).

    Where processes cannot be matched to pods, each tenant counts with its full promise.
    """
    if sample.used_mib is None:
        return 0
    by_tenant = sample.used_by_tenant_mib
    covered = sum(mib if by_tenant is None else min(by_tenant.get(tenant, 0), mib) for tenant, mib in promised.items())
    return max(0, sample.used_mib - covered)


def _device(
    info: DeviceInfo, *, sample: DeviceSample, tenants: Sequence[NodeTenant], before: Device | None, seconds: float
) -> Device:
    holders = [tenant.uid for tenant in tenants if any(held.uuid == info.uuid for held in tenant.devices)]
    promised = {tenant.uid: promised_mib(tenant, uuid=info.uuid) for tenant in tenants}
    return Device(
        index=info.index,
        uuid=info.uuid,
        vendor=info.vendor,
        model=info.model,
        memory_mib=info.memory_mib,
        reserved_mib=info.reserved_mib,
        compute_capability=info.compute_capability,
        mig_profile=info.mig_profile,
        parent=info.parent,
        pci_bus_id=info.pci_bus_id,
        numa_node=info.numa_node,
        links=info.links,
        used_mib=sample.used_mib or 0,
        foreign_mib=foreign_mib(sample, promised=promised),
        tenants=_uses(sample, promised=promised),
        totals=carried_on(holders, used_mib=sample.used_by_tenant_mib or {}, before=before, seconds=seconds),
        utilization=_quantised(sample.utilization),
        temperature_celsius=sample.temperature_celsius,
        power_watts=sample.power_watts,
        health="Unhealthy" if sample.unhealthy_reason else "Healthy",
        health_reason=sample.unhealthy_reason,
        faults=[Fault(reason=each.reason, at=timestamp(each.at)) for each in sample.faults],
    )


def _free(devices: Sequence[Device], *, tenants: Sequence[NodeTenant], assignments: Sequence[Assignment]) -> str:
    """How many healthy devices no pod was promised, in thousandths of a device, as people write it: 5.5."""
    given = {card_of(id_) for each in assignments for id_ in each.devices}
    milli = 0
    for device in devices:
        if device.health == "Healthy" and device.uuid not in given:
            promised = sum(promised_milli(tenant, uuid=device.uuid) for tenant in tenants)
            milli += max(0, WHOLE_MILLI - promised)
    return f"{milli / WHOLE_MILLI:g}"


def _uses(sample: DeviceSample, *, promised: dict[str, int]) -> list[TenantUse]:
    """Return the memory that each tenant of the device uses; empty if unavailable."""
    used = sample.used_by_tenant_mib or {}
    return [TenantUse(uid=uid, used_mib=used[uid]) for uid in sorted(promised.keys() & used.keys())]


def _quantised(ratio: float | None) -> float:
    """Round to hundredths: finer steps are noise that would be written into etcd."""
    return 0.0 if ratio is None else round(min(1.0, max(0.0, ratio)), _RATIO_DIGITS)


def condition(
    type_: str,
    *,
    status: Literal["True", "False"],
    reason: str,
    message: str,
    previous: GPUNodeStatus | None,
    now: datetime,
) -> Condition:
    """Build a condition; `previous` keeps the time at which it changed."""
    before = find_condition(previous.conditions, type=type_) if previous else None
    changed = before is None or before.status != status
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=timestamp(now) if before is None or changed else before.last_transition_time,
    )


def _ready(
    status: Literal["True", "False"], *, reason: str, message: str, previous: GPUNodeStatus | None, now: datetime
) -> Condition:
    return condition(READY, status=status, reason=reason, message=message, previous=previous, now=now)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
