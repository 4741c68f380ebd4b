"""Where a vendor's plugin serves a node: which tenant has which devices, as kubelet says or, simulated, deals. Pure."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.gpunode import Assignment
from dovetail.gpu.device_plugins import Vendors, card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.allocation import AllocatedDevice
from dovetail_agent.devices.model import DeviceInfo, Inventory
from dovetail_agent.tenants import Tenant


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeldDevice:
    """One device as kubelet has it: what asked for it, and its id.

    `asked_by` is a device plugin's resource, such as nvidia.com/gpu, or the driver of a resource claim, such as
    gpu.nvidia.com.
    """

    asked_by: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds devices; kubelet tells no UID."""

    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]


# Ids that tell no UUID but the driver's index: plain (NVIDIA's plugin by index), Ascend910-3, gpu-3 (resource claims).
_BY_INDEX: Final = re.compile(r"(?:Ascend\w+-|gpu-)?(\d{1,3})")


def given(tenants: Iterable[Tenant], assignments: Iterable[Assignment], *, inventory: Inventory) -> tuple[Tenant, ...]:
    """The tenants, each with the whole devices that kubelet gave it."""
    known = {device.uuid: device for device in inventory.devices}
    uuids = {each.uid: each.devices for each in assignments}
    return tuple(
        replace(tenant, devices=tuple(_whole(known[uuid]) for uuid in _cards(uuids[tenant.uid]) if uuid in known))
        if tenant.uid in uuids
        else tenant
        for tenant in tenants
    )


def matched(
    holders: Iterable[Holder], *, tenants: Iterable[Tenant], inventory: Inventory, vendors: Vendors
) -> list[Assignment]:
    """What kubelet says, pod by pod, with the devices' UUIDs: `GPU-…`, `GPU-…::3` for a replica of one, `MIG-…`.

    Kubelet tells names and no UIDs. Where an old pod goes while a new one of its name comes, it may name both: then
    neither is told, until one is left. A pod that was promised devices of a managed node is not told again.
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


def _uuid(held: HeldDevice, *, inventory: Inventory, vendors: Vendors) -> str:
    """The UUID that an id of kubelet's means, with its replica's number; empty for what is no device of a vendor's.

    AMD's plugin has PCI addresses for ids.
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
    """The cards that ids mean, each once."""
    return list(dict.fromkeys(card_of(each) for each in devices))


def _whole(device: DeviceInfo) -> AllocatedDevice:
    return AllocatedDevice(
        uuid=device.uuid,
        index=device.index,
        share_milli=WHOLE_MILLI,
        memory_mib=max(0, device.memory_mib - device.reserved_mib),
    )
