"""Maps tenants to devices where a vendor's plugin serves the node. Pure.

The assignments come from kubelet, or on a simulated node from `deal`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Assignment
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.gpu.device_plugins import Vendors, card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail_agent.devices.model import DeviceInfo, Inventory


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeldDevice:
    """A device as kubelet lists it: what requested it, and its ID.

    `asked_by` is a device plugin's resource, such as nvidia.com/gpu, or the driver of a resource claim, such as
    gpu.nvidia.com.
    """

    asked_by: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds devices. Kubelet gives no UID."""

    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]


# IDs that contain the driver's index and no UUID: plain numbers (NVIDIA's plugin by index), Ascend910-3, gpu-3
# (resource claims).
_BY_INDEX: Final = re.compile(r"(?:Ascend\w+-|gpu-)?(\d{1,3})")


def given(
    tenants: Iterable[NodeTenant], *, assignments: Iterable[Assignment], inventory: Inventory
) -> tuple[NodeTenant, ...]:
    """Return the tenants, each with the whole devices that kubelet assigned to it."""
    known = {device.uuid: device for device in inventory.devices}
    uuids = {each.uid: each.devices for each in assignments}
    return tuple(
        with_fields(tenant, devices=[_whole(known[uuid]) for uuid in _cards(uuids[tenant.uid]) if uuid in known])
        if tenant.uid in uuids
        else tenant
        for tenant in tenants
    )


def matched(
    holders: Iterable[Holder], *, tenants: Iterable[NodeTenant], inventory: Inventory, vendors: Vendors
) -> list[Assignment]:
    """Return kubelet's assignments in the order of pod UIDs, with the devices' UUIDs.

    A device is `GPU-…`, `GPU-…::3` for a replica, or `MIG-…`.
    Kubelet gives names and no UIDs. While a pod is replaced by a pod of the same name, kubelet can list both. Then
    neither is reported until only one is left. A pod with promised devices of a managed node is not reported here.
    """
    tenant_of = {(tenant.namespace, tenant.name): tenant for tenant in tenants if not tenant.devices}
    named = list(holders)
    counts = Counter((holder.namespace, holder.name) for holder in named)
    found = []
    for holder in named:
        tenant = tenant_of.get((holder.namespace, holder.name))
        devices = [uuid for held in holder.devices if (uuid := _uuid(held, inventory=inventory, vendors=vendors))]
        if tenant is not None and devices and counts[holder.namespace, holder.name] == 1:
            one = Assignment(uid=tenant.uid, namespace=tenant.namespace, name=tenant.name, devices=sorted(set(devices)))
            found.append(one)
    return sorted(found, key=lambda each: each.uid)


def deal(
    inventory: Inventory, *, sick: Collection[int], tenants: Sequence[NodeTenant], previous: Iterable[Assignment]
) -> list[Assignment]:
    """Return what kubelet's device manager would have assigned.

    Pods keep the devices that they have. Others get free healthy devices from the last index down, so that no code
    depends on the order. A tenant gets none if there are too few, as kubelet would reject its pod.
    """
    waiting = {tenant.uid: tenant for tenant in tenants if tenant.vendor_devices}
    present = {device.uuid for device in inventory.devices}
    kept = [each for each in previous if each.uid in waiting and present.issuperset(each.devices)]
    taken = {uuid for each in kept for uuid in each.devices}
    free = [device.uuid for device in inventory.devices if device.uuid not in taken and device.index not in sick]
    dealt = list(kept)
    for uid in sorted(waiting.keys() - {each.uid for each in kept}):
        tenant = waiting[uid]
        if tenant.vendor_devices <= len(free):
            devices = [free.pop() for _ in range(tenant.vendor_devices)]
            dealt.append(Assignment(uid=uid, namespace=tenant.namespace, name=tenant.name, devices=sorted(devices)))
    return sorted(dealt, key=lambda each: each.uid)


def _uuid(held: HeldDevice, *, inventory: Inventory, vendors: Vendors) -> str:
    """Return the UUID for a kubelet ID, with its replica number; empty for other resources.

    AMD's plugin uses PCI addresses as IDs.
    """
    if vendors.vendor_of(held.asked_by) is None:
        return ""
    card, replica = card_of(held.id), held.id[len(card_of(held.id)) :]
    if card.startswith(("GPU-", "MIG-")) or any(device.uuid == card for device in inventory.devices):
        return held.id
    index = _BY_INDEX.fullmatch(card)
    for device in inventory.devices:
        if (device.pci_bus_id and device.pci_bus_id == card.lower()) or (index and device.index == int(index[1])):
            return device.uuid + replica
    return ""


def _cards(devices: Iterable[str]) -> list[str]:
    """The UUIDs of the physical devices that the IDs belong to, each once."""
    return list(dict.fromkeys(card_of(each) for each in devices))


def _whole(device: DeviceInfo) -> AllocatedDevice:
    return AllocatedDevice(
        uuid=device.uuid,
        index=device.index,
        share_milli=WHOLE_MILLI,
        memory_mib=max(0, device.memory_mib - device.reserved_mib),
    )
