"""Identifies, signals and ends processes of this machine. Linux only, through /proc.

A PID alone identifies no process: PIDs are reused. Here a PID and a start time identify a process, and a signal goes
through a pidfd, so that it cannot reach a later process with the same PID.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail_sandbox.state import ProcessId

MARK: Final = "DOVETAIL_SANDBOX"  # in the environment of every process of a sandbox: its folder
_PROC: Final = Path("/proc")
_POLL_SECONDS: Final = 0.02
_ENDED: Final = frozenset("ZX")


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this PID now; None if there is none, or only a zombie."""
    fields = _stat(pid)
    return None if not fields or fields[0] in _ENDED else ProcessId(pid, int(fields[19]))


def exit_status(pid: int) -> int | None:
    """Return the exit status of a zombie, in waitpid's format; None if it is not a zombie."""
    fields = _stat(pid)
    return int(fields[49]) if fields and fields[0] in _ENDED else None


def alive(process: ProcessId | None) -> bool:
    """Whether this process still runs."""
    return process is not None and identify(process.pid) == process


def send(process: ProcessId, signal_number: int) -> bool:
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


def output_to(log: str) -> list[tuple[int, int, str, int, int] | tuple[int, int, int]]:
    """File actions for `posix_spawn`: no input, and all output appended to a log."""
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def marked(folder: Path) -> list[ProcessId]:
    """Return every process of the sandbox in that folder, except the caller."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        process = identify(int(entry.name))
        with suppress(OSError):
            if process and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


def end(processes: Iterable[ProcessId], *, grace_seconds: float) -> None:
    """End processes: SIGTERM, then SIGKILL after the grace period (0: at once).

    Return when all are gone.
    """
    first = signal.SIGTERM if grace_seconds else signal.SIGKILL
    rest = [process for process in processes if send(process, first)]
    rest = _wait_gone(rest, seconds=grace_seconds)
    for process in rest:
        send(process, signal.SIGKILL)
    _wait_gone(rest, seconds=10.0)


def forget(process: ProcessId) -> None:
    """Reap an ended process if it is a child of ours. Otherwise it stays a zombie until we end."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third, the state, on; empty without a process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    # The second field, the name in brackets, can contain anything: count from the last bracket.
    return stat[stat.rindex(")") + 2 :].split()


def _wait_gone(processes: list[ProcessId], *, seconds: float) -> list[ProcessId]:
    limit = time.monotonic() + seconds
    while (rest := [process for process in processes if alive(process)]) and time.monotonic() < limit:
        time.sleep(_POLL_SECONDS)
    return rest
