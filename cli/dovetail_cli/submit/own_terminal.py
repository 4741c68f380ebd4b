"""gbatch --interactive on one's own machine: the job gets this terminal, or these pipes.

The job's process connects to a socket of gbatch's, in a folder that only this user may enter. The protocol is that of
`dovetail_sandbox.localnode.terminal`, which runs in the job.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_JOB: Final = ("-P", "-m", "dovetail_sandbox.localnode.terminal")
_SOCKET: Final = "terminal"
_MOST_BYTES: Final = 65_536
_FAILED: Final = 1
# Whether there is a terminal, its rows and columns: `dovetail_sandbox.localnode.terminal.ASKED`.
_ASKED: Final = struct.Struct("=?HH")


@dataclass(slots=True, kw_only=True)
class Door:
    """Where the job's process comes in."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="dovetail-")))
    server: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX))

    def __post_init__(self) -> None:
        self.server.bind(str(self.folder / _SOCKET))
        self.server.listen(1)
        self.server.setblocking(False)

    def command(self, words: Sequence[str]) -> list[str]:
        """The job's command, through this door."""
        return [sys.executable, *_JOB, str(self.folder / _SOCKET), *words]

    async def entered(self, *, seconds: float) -> socket.socket | None:
        """The connection of the job's process; None if none comes in that time."""
        try:
            async with asyncio.timeout(seconds):
                return (await asyncio.get_running_loop().sock_accept(self.server))[0]
        except TimeoutError:
            return None

    def close(self) -> None:
        """Leave nothing."""
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


async def attached(
    line: socket.socket, *, with_terminal: bool, stdin: int = 0, stdout: int = 1, stderr: int = 2
) -> int:
    """Be the terminal of the job's process, or give it these files.

    Return its exit code; 1 if it tells none.
    """
    if not with_terminal:
        line.setblocking(True)
        socket.send_fds(line, [_ASKED.pack(False, 0, 0)], [stdin, stdout, stderr])
        return await _code(line)
    size = os.get_terminal_size(stdout)
    line.setblocking(True)
    line.sendall(_ASKED.pack(True, size.lines, size.columns))
    _, (end,), _, _ = await asyncio.to_thread(socket.recv_fds, line, 1, 1)
    try:
        with _raw(stdin), _resized(end, terminal=stdout):
            await _copied(end, stdin=stdin, stdout=stdout)
    finally:
        os.close(end)
    return await _code(line)


async def _code(line: socket.socket) -> int:
    line.setblocking(False)
    said = await asyncio.get_running_loop().sock_recv(line, _MOST_BYTES)
    return int(said) if said.strip().isdigit() else _FAILED


async def _copied(end: int, *, stdin: int, stdout: int) -> None:
    """Copy both ways until the job's end of the terminal is closed."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def typed() -> None:
        if data := os.read(stdin, _MOST_BYTES):
            os.write(end, data)
        else:
            loop.remove_reader(stdin)

    def printed() -> None:
        try:
            data = os.read(end, _MOST_BYTES)
        except OSError:
            # Linux says EIO once no process has the terminal any more.
            data = b""
        if data:
            os.write(stdout, data)
        else:
            closed.set()

    loop.add_reader(stdin, typed)
    loop.add_reader(end, printed)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(stdin)
        loop.remove_reader(end)


@contextmanager
def _raw(stdin: int) -> Iterator[None]:
    """Each key goes to the job, Ctrl-C too; at the end the terminal is as before."""
    before = termios.tcgetattr(stdin)
    # What was typed already is kept.
    tty.setraw(stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextmanager
def _resized(end: int, *, terminal: int) -> Iterator[None]:
    """Pass on each new size of the terminal."""
    loop = asyncio.get_running_loop()

    def resize() -> None:
        size = os.get_terminal_size(terminal)
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))

    loop.add_signal_handler(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
