"""Which pod uses how much of a device, from the processes that a driver names. Reads `/proc`, nothing else."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dovetail_agent.cgroups import Owner, owner_in

PROC: Final = Path("/proc")
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


def used_by_pod(used_mib: Mapping[int, int | None], *, proc: Path = PROC) -> dict[str, int] | None:
    """Memory in MiB by pod UID from that by process; None where the driver does not give it for every process.

    What belongs to no pod is left out: it shows as what the device uses beyond these.
    """
    if any(mib is None for mib in used_mib.values()):
        return None
    by_pod: Counter[str] = Counter()
    for pid, mib in used_mib.items():
        if owner := owner_of(pid, proc=proc):
            by_pod[owner.pod_uid] += mib or 0
    return dict(by_pod)
