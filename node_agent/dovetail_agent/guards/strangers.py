"""Who uses a device that was not given to it: judged from the driver's processes and what pods were promised. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dovetail.api.gpunode import Stranger
from dovetail_agent.devices.model import DeviceInfo, Inventory, Process, Sample
from dovetail_agent.tenants import Tenant

MOST: Final = 16
# MPS runs the work of its clients in a server of its own, of which a driver tells beside them.
_SERVANTS: Final = frozenset({"nvidia-cuda-mps"})


def strangers_on(
    device: DeviceInfo, processes: Iterable[Process], *, tenants: Sequence[Tenant], commands: dict[int, str]
) -> Iterator[Stranger]:
    """The processes on a device to which it was not given. `commands` has what processes call themselves, by number.

    Nobody is a stranger on what a reservation holds, for that is kept for whoever was told of it. A pod that asked a
    vendor's plugin is not judged before kubelet has said what it gave.
    """
    holders = {tenant.uid for tenant in tenants if any(each.uuid == device.uuid for each in tenant.devices)}
    if any(tenant.reservation for tenant in tenants if tenant.uid in holders):
        return
    unknown = {tenant.uid for tenant in tenants if tenant.by_vendor and not tenant.devices}
    names = {tenant.uid: f"{tenant.namespace}/{tenant.name}" for tenant in tenants}
    for process in processes:
        command = commands.get(process.pid, "")
        if process.pod_uid in holders | unknown or command in _SERVANTS:
            continue
        pod = names.get(process.pod_uid, "")
        yield Stranger(pid=process.pid, command=command, uid=process.pod_uid, pod=pod)


def pairs(inventory: Inventory, sample: Sample) -> Iterator[tuple[DeviceInfo, tuple[Process, ...]]]:
    """The devices of which processes are told, with these."""
    for device, state in zip(inventory.devices, sample.devices, strict=True):
        if state.processes is not None:
            yield device, state.processes


def sentence(stranger: Stranger, *, called: str, tainted: bool) -> str:
    """What a person is told of a stranger on the device that is `called` so."""
    named = f"process {stranger.pid}" + (f" ({stranger.command})" if stranger.command else "")
    if stranger.pod:
        who = f"{named} of pod {stranger.pod} uses {called}, which the pod was not given"
    elif stranger.uid:
        who = f"{named} of a pod that has ended or is not known (UID {stranger.uid}) uses {called}"
    else:
        who = f"{named} of no pod uses {called}"
    return f"{who}; it takes no new work meanwhile" if tainted else who
