"""The node as suspend to host sees it: last look, pod cgroups, current free device memory.

A pod's cgroup, v1 or v2, says how much more host memory it can use. Only reads files.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.checkpoint.admission import Candidate, DeviceMemory, OnDevice
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.mps.devices import DevicesUnreadable, MpsDevices
from dovetail_agent.processes import identity
from dovetail_agent.report import node_status
from dovetail_agent.tenants import promised_mib
from dovetail_agent.turns.cgroup_freezer import group_of_pod

_MIB: Final = 1 << 20
# Cgroup v1 writes the largest number of pages for "no limit", not a word.
_NO_LIMIT_BYTES: Final = 1 << 60
_FILES_V2: Final = ("memory.max", "memory.current")
_FILES_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def pod_free_mib(uid: str, *, mount: Path, proc: Path) -> int | None:
    """Free MiB up to the pod's limit or the node's end, whichever is less; None if unreadable.

    `mount` is where the node's cgroups are mounted.
    """
    v2 = (mount / "cgroup.controllers").exists()
    root = mount if v2 else mount / "memory"
    group = group_of_pod(root, uid=uid)
    if group is None:
        return None
    try:
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in (_FILES_V2 if v2 else _FILES_V1))
        left = _available_mib(proc)
        if limit != "max" and int(limit) < _NO_LIMIT_BYTES:
            left = min(left, (int(limit) - int(used)) // _MIB)
    except (OSError, ValueError):
        return None
    return max(0, left)


def _available_mib(proc: Path) -> int:
    """The node's available memory in MiB.

    Raises `OSError`, and `ValueError` if the kernel does not report it.
    """
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise ValueError("no MemAvailable")


class SeenWorld:
    """Implements `World`. The feature replaces `seen` at every look.

    While `live` is false, no tenant is moved.
    """

    def __init__(
        self,
        *,
        cards: MpsDevices,
        cgroups: Path,
        proc: Path,
        mps_clients: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self.seen: Seen | None = None
        self.live = False
        self._mps_clients = mps_clients
        self._cards = cards
        self._cgroups = cgroups
        self._proc = proc

    def candidate(self, tenant: NodeTenant) -> Candidate:
        """Implement `World.candidate`."""
        mine = [(info, sample) for info, sample in _pairs(self.seen) if _has(tenant, info=info)]
        return Candidate(
            name=f"{tenant.namespace}/{tenant.name}",
            processes=[on for info, sample in mine for on in _processes(tenant, info=info, sample=sample)],
            promised_mib={info.uuid: promised_mib(tenant, uuid=info.uuid) for info, _ in mine},
            host_free_mib=pod_free_mib(tenant.uid, mount=self._cgroups, proc=self._proc),
            under_mps=tenant.uid in self._mps_clients(),
            in_mig=any(info.mig_profile for info, _ in mine),
        )

    def crowded(self, tenant: NodeTenant) -> bool:
        """Implement `World.crowded`. False until a probe has shown that tenants can be moved."""
        seen = self.seen
        if seen is None or not self.live:
            return False
        return any(
            not card_memory(info, sample=sample, seen=seen).fits
            for info, sample in _pairs(seen)
            if _has(tenant, info=info)
        )

    def free_mib(self) -> Mapping[str, int]:
        """Implement `World.free_mib`."""
        try:
            return {uuid: card.free_mib for uuid, card in self._cards.list_devices().items()}
        except DevicesUnreadable:
            return {}

    def started(self, pid: int, *, pod_uid: str = "") -> int | None:
        """Implement `World.started`."""
        began = identity.started(pid, proc=self._proc)
        if not pod_uid or identity.is_same(pid, began=began, pod_uid=pod_uid, proc=self._proc):
            return began
        return None


def card_memory(info: DeviceInfo, *, sample: DeviceSample, seen: Seen) -> DeviceMemory:
    """Return the memory that the tenants of a device want together.

    A tenant on the host uses nothing on the device, and wants its promised memory. Tenants that share a device beyond
    its memory get what the strictest memory guard leaves; otherwise the device's memory is the limit.
    """
    promised = {tenant.uid: promised_mib(tenant, uuid=info.uuid) for tenant in seen.tenants if _has(tenant, info=info)}
    used = sample.used_by_tenant_mib or {}
    foreign = node_status.foreign_mib(sample, promised=promised) if used else 0
    beyond = sum(max(0, used.get(uid, 0) - mib) for uid, mib in promised.items())
    total = info.memory_mib - info.reserved_mib
    guards = [tenant.guard_fraction for tenant in seen.tenants if tenant.uid in promised and tenant.movable]
    guarded = int(total * min(guards, default=1.0))
    return DeviceMemory(
        usable_mib=(guarded if sum(promised.values()) > guarded else total) - max(0, foreign - beyond),
        wanted_mib={uid: max(mib, used.get(uid, 0)) for uid, mib in promised.items()},
    )


def _pairs(seen: Seen | None) -> Iterator[tuple[DeviceInfo, DeviceSample]]:
    if seen is not None and seen.inventory is not None and seen.sample is not None:
        yield from zip(seen.inventory.devices, seen.sample.devices, strict=True)


def _has(tenant: NodeTenant, *, info: DeviceInfo) -> bool:
    return any(device.uuid == info.uuid for device in tenant.devices)


def _processes(tenant: NodeTenant, *, info: DeviceInfo, sample: DeviceSample) -> Iterator[OnDevice]:
    for process in sample.processes or ():
        if process.pod_uid == tenant.uid:
            yield OnDevice(pid=process.pid, uuid=info.uuid, used_mib=process.used_mib)
