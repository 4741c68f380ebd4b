"""Processes of this machine: which is which, whether it lives, and how it is ended. Linux, through /proc.

A number alone names nobody: numbers are used again. A process is known here by its number and its start time, and a
signal goes through a pidfd, so that it cannot reach a later process of the same number.
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
    """The process that has this number now; None when there is none, or only its remains."""
    fields = _stat(pid)
    return None if not fields or fields[0] in _ENDED else ProcessId(pid, int(fields[19]))


def exit_status(pid: int) -> int | None:
    """How a process ended whose remains are there (its parent has not looked yet), as waitpid would tell it."""
    fields = _stat(pid)
    return int(fields[49]) if fields and fields[0] in _ENDED else None


def alive(process: ProcessId | None) -> bool:
    """Whether this very process still runs."""
    return process is not None and identify(process.pid) == process


def send(process: ProcessId, signal_number: int) -> bool:
    """Sends a signal to this very process. False when it is gone."""
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
    """What `posix_spawn` does with a new program's files: nothing to read, and all that it writes goes to a log."""
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def marked(folder: Path) -> list[ProcessId]:
    """Every process of the sandbox in that folder, however it came to be. Not the caller itself."""
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
    """Ends processes: asks, and after the grace period (0: at once) does not ask. Returns when they are gone."""
    first = signal.SIGTERM if grace_seconds else signal.SIGKILL
    rest = [process for process in processes if send(process, first)]
    rest = _wait_gone(rest, seconds=grace_seconds)
    for process in rest:
        send(process, signal.SIGKILL)
    _wait_gone(rest, seconds=10.0)


def forget(process: ProcessId) -> None:
    """Takes leave of a process that has ended, if it was a child of ours; else its remains stay until we end."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third, the state, on; empty when there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    # The second field is the name in brackets and may hold anything, so count from the last bracket.
    return stat[stat.rindex(")") + 2 :].split()


def _wait_gone(processes: list[ProcessId], *, seconds: float) -> list[ProcessId]:
    limit = time.monotonic() + seconds
    while (rest := [process for process in processes if alive(process)]) and time.monotonic() < limit:
        time.sleep(_POLL_SECONDS)
    return rest
