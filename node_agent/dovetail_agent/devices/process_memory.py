"""Which pod uses how much of a device, from the processes that a driver names. Reads `/proc`, nothing else."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dovetail_agent.devices.model import Process
from dovetail_agent.processes.cgroups import Owner, owner_in
from dovetail_agent.processes.identity import PROC, started

# The kernel's number of the first PID namespace (PROC_PID_INIT_INO): drivers name processes as that one counts them.
_HOST_NAMESPACE: Final = "pid:[4026531836]"


def sees_host_processes(proc: Path = PROC) -> bool:
    """Whether the process numbers in `proc` are the node's own; in a pod without `hostPID` they are not."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _HOST_NAMESPACE
    except OSError:
        return False


def owner_of(pid: int, *, proc: Path = PROC) -> Owner | None:
    """The owner of a process; None for one of no pod, and for one that has ended."""
    try:
        return owner_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def command_of(pid: int, *, proc: Path = PROC) -> str:
    """What a process calls itself, its first 15 bytes; empty for one that has ended."""
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def owned(used_mib: Mapping[int, int | None], *, proc: Path = PROC) -> tuple[Process, ...]:
    """The processes with their owners, from the memory in MiB of each; by number."""
    return tuple(_owned(pid, used_mib=used_mib[pid], proc=proc) for pid in sorted(used_mib))


def used_by_pod(processes: Iterable[Process]) -> dict[str, int] | None:
    """Memory in MiB by pod UID; None where the driver does not give it for every process.

    What belongs to no pod is left out: it shows as what the device uses beyond these.
    """
    by_pod: Counter[str] = Counter()
    for process in processes:
        if process.used_mib is None:
            return None
        if process.pod_uid:
            by_pod[process.pod_uid] += process.used_mib
    return dict(by_pod)


def _owned(pid: int, *, used_mib: int | None, proc: Path) -> Process:
    # The start first: where the number changes hands in between, the two do not fit together, and no process is killed.
    began, owner = started(pid, proc=proc), owner_of(pid, proc=proc)
    if owner is None:
        return Process(pid=pid, used_mib=used_mib)
    return Process(pid=pid, used_mib=used_mib, pod_uid=owner.pod_uid, container_id=owner.container_id, started=began)
