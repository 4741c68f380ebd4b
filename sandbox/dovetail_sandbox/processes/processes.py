"""Starts and ends the processes of sandboxes."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail.process import identity
from dovetail.process.identity import ProcessId, alive, send
from dovetail_local_node.launch import MARK as JOB_MARK

MARK: Final = "DOVETAIL_SANDBOX"  # in the environment of every process of a sandbox: its folder
_POLL_SECONDS: Final = 0.02


def output_to(log: str) -> list[tuple[int, int, str, int, int] | tuple[int, int, int]]:
    """File actions for `posix_spawn`: no input, and all output appended to a log."""
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def of_sandbox(folder: Path) -> list[ProcessId]:
    """Return every process of the sandbox in that folder, except the caller."""
    return identity.marked(MARK, value=str(folder))


def programs_of(folder: Path) -> list[ProcessId]:
    """Return the processes of the sandbox in that folder without those of its jobs, and without the caller."""
    return identity.marked(MARK, value=str(folder), without=JOB_MARK)


def end(processes: Iterable[ProcessId], *, grace_seconds: float) -> None:
    """End processes: SIGTERM, then SIGKILL after the grace period (0: at once).

    Return when all are gone.
    """
    first = signal.SIGTERM if grace_seconds else signal.SIGKILL
    rest = [process for process in processes if send(process, signal_number=first)]
    rest = wait_gone(rest, seconds=grace_seconds)
    for process in rest:
        send(process, signal_number=signal.SIGKILL)
    wait_gone(rest, seconds=10.0)


def forget(process: ProcessId) -> None:
    """Reap an ended process if it is a child of ours. Otherwise it stays a zombie until we end."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def wait_gone(processes: list[ProcessId], *, seconds: float) -> list[ProcessId]:
    """Return when all have ended, or after `seconds` those that still run."""
    limit = time.monotonic() + seconds
    while (rest := [process for process in processes if alive(process)]) and time.monotonic() < limit:
        time.sleep(_POLL_SECONDS)
    return rest
