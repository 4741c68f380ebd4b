"""A job with the terminal of who submitted it: `python -m dovetail_sandbox.localnode.terminal SOCKET COMMAND…`.

`gbatch --interactive` listens at the socket, in a folder that only its user may enter. It says what it has, and this
program runs the command with it:

    a terminal          the command gets a new pseudo-terminal, whose other end goes to gbatch
    pipes or files      the command gets these very files

The last line through the socket is the exit code. When gbatch is gone, the command gets SIGHUP, as when a terminal
closes.
"""

import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from dovetail_local_node.execute import DEFAULT_SIGNALS

_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_BY_SIGNAL: Final = 128
# What gbatch says first: whether it has a terminal, its rows and columns.
ASKED: Final = struct.Struct("=?HH")


def main() -> int:
    """Run the command to its end, and return its exit code."""
    path, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        asked, files, _, _ = socket.recv_fds(line, ASKED.size, 3)
        has_terminal, rows, columns = ASKED.unpack(asked)
        child = (
            _in_terminal(command, rows=rows, columns=columns, line=line)
            if has_terminal
            else _with_files(command, files=files)
        )
        code = _waited(child, line=line)
        with suppress(OSError):
            line.sendall(f"{code}\n".encode())
    return code


def _in_terminal(command: list[str], *, rows: int, columns: int, line: socket.socket) -> int:
    child, end = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        _execute(command)
    socket.send_fds(line, [b"\0"], [end])
    os.close(end)
    return child


def _with_files(command: list[str], *, files: Sequence[int]) -> int:
    child = os.fork()
    if child == 0:
        for target, source in enumerate(files):
            os.dup2(source, target)
        _execute(command)
    for each in files:
        os.close(each)
    return child


def _execute(command: list[str]) -> NoReturn:
    for number in DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - its purpose
    except OSError as error:
        sys.stderr.write(f"dovetail: {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


def _waited(child: int, *, line: socket.socket) -> int:
    """The exit code of the child. It gets what ends this process, and SIGHUP once gbatch is gone."""
    signal.signal(signal.SIGTERM, lambda number, _: _signal(child, number=number))
    watched = select.poll()
    ended = os.pidfd_open(child)
    watched.register(ended, select.POLLIN)
    watched.register(line, select.POLLIN)
    while ended not in (ready := [descriptor for descriptor, _ in watched.poll()]):
        if line.fileno() in ready:
            watched.unregister(line)
            _signal(child, number=signal.SIGHUP)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else _BY_SIGNAL - code


def _signal(child: int, *, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


if __name__ == "__main__":
    sys.exit(main())
