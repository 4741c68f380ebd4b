"""Identifies processes of this machine and signals them. Linux only, through /proc.

A PID alone identifies no process: PIDs are reused. Here a PID and a start time identify a process, and a signal goes
through a pidfd, so that it cannot reach a later process with the same PID.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

PROC: Final = Path("/proc")
_BOOT_ID: Final = PROC / "sys" / "kernel" / "random" / "boot_id"
_ENDED: Final = frozenset("ZX")


class ProcessId(msgspec.Struct, frozen=True):
    """A process, identified by its PID and its start time in clock ticks since boot."""

    pid: int
    started: int


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this PID now; None if there is none, or only a zombie."""
    fields = stat_of(pid)
    return None if not fields or fields[0] in _ENDED else ProcessId(pid, int(fields[19]))


def exit_status(pid: int) -> int | None:
    """Return the exit status of a zombie, in waitpid's format; None if it is not a zombie."""
    fields = stat_of(pid)
    return int(fields[49]) if fields and fields[0] in _ENDED else None


def alive(process: ProcessId | None) -> bool:
    """Whether this process still runs."""
    return process is not None and identify(process.pid) == process


def send(process: ProcessId, *, signal_number: int) -> bool:
    """Send a signal to this process. Return False if it is gone."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            if not alive(process):
                return False
            signal.pidfd_send_signal(handle, signal_number)
        finally:
            os.close(handle)
        return True
    return False


def marked(variable: str, *, value: str, without: str = "") -> list[ProcessId]:
    """Return every process, except the caller, whose environment has `variable` with this value.

    Leaves out those that have the variable `without`.
    """
    wanted, unwanted = f"{variable}={value}".encode(), f"{without}=".encode() if without else None
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        process = identify(int(entry.name))
        with suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            left_out = unwanted is not None and any(each.startswith(unwanted) for each in environment)
            if process and wanted in environment and not left_out:
                found.append(process)
    return found


def boot_id() -> str:
    """Return the kernel's identifier of the current boot."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third, the state, on; empty without a process."""
    try:
        return stat_fields((PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def stat_fields(stat: str) -> list[str]:
    """The fields of a line of /proc/<pid>/stat from the third on; empty for any other text."""
    # The second field, the name in brackets, can contain anything: count from the last bracket.
    return stat.rpartition(")")[2].split()
