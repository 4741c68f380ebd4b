"""Starts, watches and ends the processes of runs."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_local_node import execute
from dovetail_local_node.launch import MARK, Launch

_SHIM: Final = Path(__file__).with_name("shim.sh")
_SHELL: Final = "/bin/sh"
# Output may have what is not for other users of the machine.
_OUTPUT_MODE: Final = 0o600
_APPENDED: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND
# A program is executed within microseconds, on a busy machine within milliseconds.
_BETWEEN_LOOKS_SECONDS: Final = 0.005
_EMPTY_LOOKS: Final = 2
# A job that starts processes faster than they are killed must not keep the node busy for ever.
_MOST_LOOKS: Final = 100


def prepare(launch: Launch) -> int:
    """Create the folders and files of the output, for its user alone; return its size in bytes. Raises `OSError`.

    Files and folders that exist already stay as they are.
    """
    for path in (launch.output, launch.error):
        if path is not None:
            path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            os.close(os.open(path, _APPENDED, _OUTPUT_MODE))
    return launch.output.stat().st_size


def start(folder: Path, *, output: Path, error: Path | None, umask: int) -> int:
    """Start the shim of the run in `folder`, whose job gets `umask`; return its PID. Raises `OSError`."""
    python = [sys.executable, "-I", "-S", str(execute.__file__), str(folder), f"{umask:o}"]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), _APPENDED, _OUTPUT_MODE),
        (os.POSIX_SPAWN_DUP2, 1, 2) if error is None else (os.POSIX_SPAWN_OPEN, 2, str(error), _APPENDED, _OUTPUT_MODE),
    ]
    return os.posix_spawn(
        _SHELL,
        [_SHELL, str(_SHIM), str(folder), *python],
        {"PATH": os.defpath},
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=execute.DEFAULT_SIGNALS,
    )


async def until_gone(process: ProcessId) -> None:
    """Return when this process has ended; a child of ours is then a zombie until `reap`."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    try:
        if identity.alive(process):
            loop.add_reader(handle, gone.set)
            await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def reap(pid: int) -> None:
    """Reap a child that has ended. Does nothing for a process that is no child of ours."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def signal_group(process: ProcessId, *, number: signal.Signals) -> None:
    """Send a signal to the process group that this process leads; does nothing if it has ended."""
    if identity.alive(process):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def kill_rest(uid: str) -> None:
    """Send SIGKILL to every process of a pod, wherever it has gone, and to those that it starts meanwhile.

    A process has no environment for a moment while it executes another program, so one look is not enough.
    """
    killed = set[ProcessId]()
    empty_looks = 0
    for _ in range(_MOST_LOOKS):
        fresh = set(identity.marked(MARK, value=uid)) - killed
        for process in fresh:
            identity.send(process, signal_number=signal.SIGKILL)
        killed |= fresh
        empty_looks = 0 if fresh else empty_looks + 1
        if empty_looks == _EMPTY_LOOKS:
            break
        time.sleep(_BETWEEN_LOOKS_SECONDS)
