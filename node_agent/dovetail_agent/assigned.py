"""Where a vendor's plugin serves a node: which tenant has which devices, as kubelet says or, simulated, deals. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from dovetail.allocation import AllocatedDevice
from dovetail.api.gpunode import Assignment
from dovetail.requests import WHOLE_MILLI
from dovetail_agent.provider import DeviceInfo, Inventory
from dovetail_agent.tenants import Tenant


def given(tenants: Iterable[Tenant], assignments: Iterable[Assignment], *, inventory: Inventory) -> tuple[Tenant, ...]:
    """The tenants, each with the whole devices that kubelet gave it."""
    known = {device.uuid: device for device in inventory.devices}
    uuids = {each.uid: each.devices for each in assignments}
    return tuple(
        replace(tenant, devices=tuple(_whole(known[uuid]) for uuid in uuids[tenant.uid] if uuid in known))
        if tenant.uid in uuids
        else tenant
        for tenant in tenants
    )


def deal(
    inventory: Inventory, *, sick: Collection[int], tenants: Sequence[Tenant], previous: Iterable[Assignment]
) -> list[Assignment]:
    """What kubelet's device manager would have given by now: who has devices keeps them, others get free healthy ones.

    From the last index down, so that nobody takes the order for granted. A tenant for whom there are too few gets
    none, as kubelet would refuse its pod.
    """
    waiting = {tenant.uid: tenant for tenant in tenants if tenant.by_vendor}
    present = {device.uuid for device in inventory.devices}
    kept = [each for each in previous if each.uid in waiting and present.issuperset(each.devices)]
    taken = {uuid for each in kept for uuid in each.devices}
    free = [device.uuid for device in inventory.devices if device.uuid not in taken and device.index not in sick]
    dealt = list(kept)
    for uid in sorted(waiting.keys() - {each.uid for each in kept}):
        tenant = waiting[uid]
        if tenant.by_vendor <= len(free):
            devices = [free.pop() for _ in range(tenant.by_vendor)]
            dealt.append(Assignment(uid=uid, namespace=tenant.namespace, name=tenant.name, devices=sorted(devices)))
    return sorted(dealt, key=lambda each: each.uid)


def _whole(device: DeviceInfo) -> AllocatedDevice:
    return AllocatedDevice(
        uuid=device.uuid,
        index=device.index,
        share_milli=WHOLE_MILLI,
        memory_mib=max(0, device.memory_mib - device.reserved_mib),
    )
