"""Simulated strangers: processes on a simulated node's devices without an assignment. Pure.

`dovetail.dev/simulated-strangers` = `{"0": {"memoryMiB": 4096}, "1": {"memoryMiB": 512, "pod": "ml/notebook"}}` puts
one on each device, by index. The process belongs to no pod, or to a pod of the node that was given another device or
none.

A module of its own: another annotation than that of the devices, and what it does to a sample.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample, Process

# Above Linux's largest PID: no process in /proc has one of these.
_FIRST_PID: Final = 1 << 23
EXAMPLE: Final = '{"0": {"memoryMiB": 4096}}'
ALLOWED: Final = "memoryMiB, a whole number of MiB from 0, and pod, a namespace/name"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStranger:
    """A process with `memory_mib` MiB, in the pod `namespace/name` or outside pods."""

    memory_mib: int
    pod: str = ""


def read_stranger(value: Any) -> SimulatedStranger | None:
    """Return the stranger that a value of the annotation declares; None if the value is invalid."""
    if not isinstance(value, dict) or not value.keys() <= {"memoryMiB", "pod"}:
        return None
    memory_mib, pod = value.get("memoryMiB"), value.get("pod", "")
    if type(memory_mib) is not int or memory_mib < 0 or not isinstance(pod, str):
        return None
    return SimulatedStranger(memory_mib=memory_mib, pod=pod)


def joined(
    sample: DeviceSample, *, stranger: SimulatedStranger, tenants: Iterable[NodeTenant], memory_mib: int
) -> DeviceSample:
    """Add the stranger to a device's sample.

    The sample then lists the tenants' processes as well.
    """
    uids = {f"{tenant.namespace}/{tenant.name}": tenant.uid for tenant in tenants}
    used = dict(sample.used_by_tenant_mib or {})
    own = processes_of(used)
    uid = uids.get(stranger.pod, "")
    if uid:
        used[uid] = used.get(uid, 0) + stranger.memory_mib
    process = Process(pid=_FIRST_PID + len(own), used_mib=stranger.memory_mib, pod_uid=uid)
    return replace(
        sample,
        used_mib=min((sample.used_mib or 0) + stranger.memory_mib, memory_mib),
        used_by_tenant_mib=used,
        processes=(*own, process),
    )


def processes_of(used_mib: Mapping[str, int], *, utilization: Mapping[str, float] | None = None) -> tuple[Process, ...]:
    """One process of each pod, from its memory in MiB and its utilization (0 to 1) by UID."""
    busy = utilization or {}
    return tuple(
        Process(pid=_FIRST_PID + at, used_mib=used_mib[uid], utilization=busy.get(uid), pod_uid=uid)
        for at, uid in enumerate(sorted(used_mib))
    )
