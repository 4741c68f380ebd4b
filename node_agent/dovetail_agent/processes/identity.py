"""Which process a number means: the kernel gives the number of an ended process to a later one.

A process is known by its number, its start time and the pod of its cgroup. `kill_same` signals no other process: it
holds the process by a pidfd while it compares, so that the number cannot change hands between the look and the signal.
"""

import os
import signal
from pathlib import Path
from typing import Final, Literal

from dovetail_agent.processes.cgroups import owner_in

PROC: Final = Path("/proc")
KillResult = Literal["Killed", "Gone", "Replaced"]


def started(pid: int, *, proc: Path = PROC) -> int | None:
    """When a process began, in ticks since boot; None if it has ended."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program, in brackets, may have blanks and brackets of its own; the 20th field after it.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


def is_same(pid: int, *, began: int | None, pod_uid: str, proc: Path = PROC) -> bool:
    """Whether the process of that number is still the one that began then, in that pod."""
    if began is None or started(pid, proc=proc) != began:
        return False
    try:
        owner = owner_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False
    return owner is not None and owner.pod_uid == pod_uid


def kill_same(pid: int, *, began: int | None, pod_uid: str, proc: Path = PROC) -> KillResult:
    """SIGKILL to that process if it is still the same one.

    Raises `OSError` where this process may not, and on kernels before 5.3, which have no pidfd.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return "Gone"
    try:
        # What /proc says now is of the process that the handle holds, or of one that took its number later: that one
        # began later too.
        if not is_same(pid, began=began, pod_uid=pod_uid, proc=proc):
            return "Replaced"
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return "Gone"
    finally:
        os.close(handle)
    return "Killed"
