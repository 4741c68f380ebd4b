"""Sums device memory by pod from the processes that a driver lists. Only reads `/proc`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dovetail_agent.devices.model import Process
from dovetail_agent.processes.cgroups import Owner, owner_in
from dovetail_agent.processes.identity import PROC, started

# The kernel's inode of the first PID namespace (PROC_PID_INIT_INO): drivers use the PIDs of this namespace.
_HOST_NAMESPACE: Final = "pid:[4026531836]"


def sees_host_processes(proc: Path = PROC) -> bool:
    """Whether the PIDs in `proc` are the node's own. In a pod without `hostPID` they are not."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _HOST_NAMESPACE
    except OSError:
        return False


def owner_of(pid: int, *, proc: Path = PROC) -> Owner | None:
    """Return the owner of a process; None if it is outside pods or has ended."""
    try:
        return owner_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def command_of(pid: int, *, proc: Path = PROC) -> str:
    """Return a process's name, its first 15 bytes; empty if it has ended."""
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def owned(used_mib: Mapping[int, int | None], *, proc: Path = PROC) -> tuple[Process, ...]:
    """Return the processes with their owners in the order of PIDs, from each one's MiB."""
    return tuple(_owned(pid, used_mib=used_mib[pid], proc=proc) for pid in sorted(used_mib))


def used_by_pod(processes: Iterable[Process]) -> dict[str, int] | None:
    """Sum memory in MiB by pod UID; None if the driver does not report it for every process.

    Memory of processes outside pods is left out: it shows as the device's use beyond these sums.
    """
    by_pod: Counter[str] = Counter()
    for process in processes:
        if process.used_mib is None:
            return None
        if process.pod_uid:
            by_pod[process.pod_uid] += process.used_mib
    return dict(by_pod)


def _owned(pid: int, *, used_mib: int | None, proc: Path) -> Process:
    # Read the start time first: if the PID passes to another process in between, the two do not match and nothing is
    # killed.
    began, owner = started(pid, proc=proc), owner_of(pid, proc=proc)
    if owner is None:
        return Process(pid=pid, used_mib=used_mib)
    return Process(pid=pid, used_mib=used_mib, pod_uid=owner.pod_uid, container_id=owner.container_id, started=began)
