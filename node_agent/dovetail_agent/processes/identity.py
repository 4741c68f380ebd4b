"""Identifies processes: the kernel gives the PID of an ended process to a later one.

A process is identified by its PID, its start time and the pod of its cgroup. `kill_same` signals no other process: it
holds the process by a pidfd while it compares, so that the PID cannot pass to another process before the signal.
"""

import os
import signal
from pathlib import Path
from typing import Final, Literal

from dovetail_agent.processes.cgroups import owner_in

PROC: Final = Path("/proc")
KillResult = Literal["Killed", "Gone", "Replaced"]


def started(pid: int, *, proc: Path = PROC) -> int | None:
    """Return a process's start time in ticks since boot; None if it has ended."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name, in brackets, can contain blanks and brackets of its own. The start is the 20th field after it.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


def is_same(pid: int, *, began: int | None, pod_uid: str, proc: Path = PROC) -> bool:
    """Whether the process with this PID still has this start time and this pod."""
    if began is None or started(pid, proc=proc) != began:
        return False
    try:
        owner = owner_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False
    return owner is not None and owner.pod_uid == pod_uid


def kill_same(pid: int, *, began: int | None, pod_uid: str, proc: Path = PROC) -> KillResult:
    """Send SIGKILL to a process if it is still the same one.

    Raises `OSError` without the right to do so, and on kernels before 5.3, which have no pidfd.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return "Gone"
    try:
        # /proc now shows the process that the handle holds, or one that got its PID later and so also started later.
        if not is_same(pid, began=began, pod_uid=pod_uid, proc=proc):
            return "Replaced"
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return "Gone"
    finally:
        os.close(handle)
    return "Killed"
