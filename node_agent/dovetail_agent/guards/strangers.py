"""Finds processes on devices that they were not given, from driver data and promises. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dovetail.api.gpunode import Stranger
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceInfo, Inventory, Process, Sample

MOST: Final = 16
# MPS runs its clients' work in a server of its own, which a driver lists in addition to the clients.
_SERVANTS: Final = frozenset({"nvidia-cuda-mps"})


def strangers_on(
    device: DeviceInfo, *, processes: Iterable[Process], tenants: Sequence[NodeTenant], commands: dict[int, str]
) -> Iterator[Stranger]:
    """Yield the processes on a device that was not given to them. `commands` has names by PID.

    A device that a reservation holds has no strangers: it is kept for its users, who may be outside the cluster. A
    pod that asked a vendor's plugin is not judged before kubelet has reported its devices.
    """
    holders = {tenant.uid for tenant in tenants if any(each.uuid == device.uuid for each in tenant.devices)}
    if any(tenant.reservation for tenant in tenants if tenant.uid in holders):
        return
    unknown = {tenant.uid for tenant in tenants if tenant.vendor_devices and not tenant.devices}
    names = {tenant.uid: f"{tenant.namespace}/{tenant.name}" for tenant in tenants}
    for process in processes:
        command = commands.get(process.pid, "")
        if process.pod_uid in holders | unknown or command in _SERVANTS:
            continue
        pod = names.get(process.pod_uid, "")
        yield Stranger(pid=process.pid, command=command, uid=process.pod_uid, pod=pod)


def pairs(inventory: Inventory, *, sample: Sample) -> Iterator[tuple[DeviceInfo, tuple[Process, ...]]]:
    """Yield each device whose processes are known, with its processes."""
    for device, state in zip(inventory.devices, sample.devices, strict=True):
        if state.processes is not None:
            yield device, state.processes


def sentence(stranger: Stranger, *, called: str, tainted: bool) -> str:
    """Describe a stranger for people; `called` names the device."""
    named = f"process {stranger.pid}" + (f" ({stranger.command})" if stranger.command else "")
    if stranger.pod:
        who = f"{named} of pod {stranger.pod} uses {called}, which the pod was not given"
    elif stranger.uid:
        who = f"{named} of a pod that has ended or is not known (UID {stranger.uid}) uses {called}"
    else:
        who = f"{named} of no pod uses {called}"
    return f"{who}; it takes no new work meanwhile" if tainted else who
