"""Decides whether a tenant can be moved to the host, and whether it fits when it returns.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.gpu.memory import CARD_MARGIN_MIB, HOST_MARGIN_MIB
from dovetail_agent.turns.suspender import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDevice:
    """A tenant's process on one device.

    `used_mib` is its measured memory there; None if unavailable.
    """

    pid: int
    uuid: str
    used_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tenant to suspend: its processes, its promised memory by UUID, and its host memory.

    `under_mps` marks a client of MPS, `in_mig` a tenant of a MIG device. `host_free_mib` is how many MiB of host memory
    the pod can still use: up to its limit, or what the node has available if the pod has no limit. None if it cannot be
    read.
    """

    name: str
    processes: Sequence[OnDevice]
    promised_mib: Mapping[str, int]
    host_free_mib: int | None
    under_mps: bool = False
    in_mig: bool = False

    @property
    def needs_mib(self) -> dict[str, int]:
        """MiB of memory that it has on each device, by UUID.

        Where the driver does not report the memory of a process, its promised memory counts instead.
        """
        needs: dict[str, int] = {}
        for each in self.processes:
            mib = self.promised_mib.get(each.uuid, 0) if each.used_mib is None else each.used_mib
            needs[each.uuid] = needs.get(each.uuid, 0) + mib
        return needs


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """A device's usable memory in MiB, and by tenant the larger of promised and used memory."""

    usable_mib: int
    wanted_mib: Mapping[str, int] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether all tenants of the device fit together."""
        return sum(self.wanted_mib.values()) <= self.usable_mib


def refusal_of(candidate: Candidate) -> Refusal | None:
    """Return why a tenant with device memory cannot be moved to the host, or None if it can."""
    pids = {each.pid for each in candidate.processes}
    if candidate.in_mig:
        return _no("MIG", message=f"{candidate.name} is on a MIG device, which the driver does not checkpoint")
    if candidate.under_mps:
        return _no("MPSClient", message=f"{candidate.name} is a client of MPS, which the driver does not checkpoint")
    if len(pids) > 1:
        message = f"{candidate.name} has {len(pids)} processes on its cards; only one alone is checkpointed"
        return _no("SeveralProcesses", message=f"{message}, for those that talk to each other would hang")
    needs = sum(candidate.needs_mib.values()) + HOST_MARGIN_MIB
    if candidate.host_free_mib is None:
        return _no(
            "HostMemoryUnknown", message=f"what memory {candidate.name} may still use on the host cannot be read"
        )
    if candidate.host_free_mib < needs:
        message = f"{candidate.name} needs {needs} MiB of host memory, only {candidate.host_free_mib} MiB left to it"
        return _no("HostMemoryShort", message=f"{message}: raise the memory limit of its pod")
    return None


def room_for(needs_mib: Mapping[str, int], *, free_mib: Mapping[str, int]) -> str:
    """Return why the devices lack room for a process's memory (MiB by UUID); empty if it fits.

    A device whose free memory is unknown counts as full.
    """
    for uuid, needed in needs_mib.items():
        free = free_mib.get(uuid)
        if free is None:
            return f"the free memory of device {uuid} cannot be read"
        if free < needed + CARD_MARGIN_MIB:
            return f"need {needed + CARD_MARGIN_MIB} MiB on device {uuid}, only {free} MiB available"
    return ""


def _no(reason: str, *, message: str) -> Refusal:
    return Refusal(reason=reason, message=message)
