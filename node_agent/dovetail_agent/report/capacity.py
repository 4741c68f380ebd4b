"""Computes the extended resources that a node should advertise, and the patch for them.

Pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Device
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.formats.quantities import whole
from dovetail.gpu.request import WHOLE_MILLI


def advertised(
    devices: Sequence[Device], *, tenants: Sequence[NodeTenant], turns_per_device: int, moved: bool = False
) -> dict[str, int]:
    """Return our resources for these devices, by name.

    A device that may not take work counts only with what its tenants still hold. kube-scheduler subtracts all tenants'
    requests from the node's sum. If theirs were not in it, they would count against the healthy devices, and a free
    device would look taken for as long as they stay. Each MIG instance counts as a device, without turns.

    Where tenants are `moved` to the host by turns, their memory may overlap: it counts `turns_per_device` times, and
    the extender checks each device. A device always counts for at least what its tenants hold.
    """
    healthy = [device for device in devices if device.health == "Healthy"]
    shared = [device for device in healthy if not device.mig_profile]
    well = {device.uuid for device in healthy}
    kept = [(tenant, device) for tenant in tenants for device in tenant.devices if device.uuid not in well]
    held_mib: Counter[str] = Counter()
    for tenant in tenants:
        for device in tenant.devices:
            held_mib[device.uuid] += device.memory_mib
    times = turns_per_device if moved else 1
    memory_mib = [max(times * device.memory_mib, held_mib[device.uuid]) for device in shared]
    shares = [device.share_milli for tenant, device in kept if tenant.mode != "TimeShared"]
    return {
        names.GPU_MILLI: WHOLE_MILLI * len(healthy) + sum(shares),
        names.GPU_MEMORY_MIB: sum(memory_mib) + sum(held.memory_mib for _, held in kept),
        names.GPU_TURN: turns_per_device * len(shared) + len(kept) - len(shares),
    }


def advertises(node: Node) -> bool:
    """Whether a node already has any of our resources in its capacity."""
    return any(_amount(node.status.capacity, name=name) for name in names.MANAGED_RESOURCES)


def capacity_patch(node: Node, *, wanted: dict[str, int]) -> dict[str, Any] | None:
    """Return the merge patch on `nodes/status` for these resources, or None if none is needed.

    Kubelet sets extended resources that it does not know to zero when it starts, so call this at every change of the
    node.
    """
    status = {
        name: missing
        for name, current in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable))
        if (missing := {key: str(amount) for key, amount in wanted.items() if _amount(current, name=key) != amount})
    }
    return {"status": status} if status else None


def _amount(quantities: Mapping[str, str], *, name: str) -> int | None:
    # The API server writes 8000 as 8k: texts cannot be compared.
    text = quantities.get(name)
    return None if text is None else whole(text, rounding="down")
