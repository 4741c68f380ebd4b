"""Dovetail's commands as programs that start at once: a server forks for each, and has imported what all of them need.

A command still is a process of its own, with its words, folder, environment and streams. It only skips the start of
Python and the imports, which take 0.2 to 0.8 s of CPU time. Tests of the start, of terminals and of `gflowd` and
`sandbox`, which start processes that live on, run what is installed.
"""

import atexit
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from dovetail_cli import app

_ROOT: Final = Path(__file__).parents[1]
_PROGRAMS: Final = ("dovetail", *(each for each in app.PROGRAMS if each != "gflowd"))
_NUMBER_BYTES: Final = 8
_READY: Final = "ready\n"
# With -I and -S, Python starts without site-packages in 0.02 s. A signal goes on to the command.
_CLIENT: Final = """#!{python} -IS
import os, signal, socket, sys

def number():
    found = b""
    while len(found) < {width} and (read := server.recv({width} - len(found))):
        found += read
    if len(found) < {width}:
        sys.exit("the server of commands has ended")
    return int.from_bytes(found, "big", signed=True)

variables = (name + b"=" + value for name, value in os.environb.items())
asked = b"\\0".join([os.getcwdb(), b"%d" % len(sys.argv), *map(os.fsencode, sys.argv), *variables])
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
socket.send_fds(server, [len(asked).to_bytes({width}, "big")], [0, 1, 2])
server.sendall(asked)
command = number()
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, lambda number, frame: os.kill(command, number))
status = number()
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def dovetail() -> list[str]:
    """The first words of a command line: of `dovetail`."""
    return [str(folder() / "dovetail")]


@cache
def folder() -> Path:
    """A folder for PATH with all programs. Their server lives as long as this process."""
    made = Path(tempfile.mkdtemp(prefix="dovetail-commands-"))
    path = str(made / "socket")
    for name in _PROGRAMS:
        (made / name).write_text(_CLIENT.format(python=sys.executable, path=path, width=_NUMBER_BYTES))
        (made / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, path], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout
    assert server.stdout.readline() == _READY
    # It ends with its standard input.
    atexit.register(server.communicate)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """A command that runs: its client, its process, and the file where it names the modules that it has imported."""

    client: socket.socket
    pid: int
    ended: int
    imported: int


class _Server:
    def __init__(self, path: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)

    def serve(self, *, until_end_of: int) -> None:
        self._selector.register(until_end_of, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fd == until_end_of:
                    return
                if key.data is None:
                    self._begin()
                elif key.fd == key.data.ended:
                    self._end(key.data)
                elif key.fd in self._selector.get_map():
                    # Its client was killed.
                    self._selector.unregister(key.fd)
                    os.kill(key.data.pid, signal.SIGKILL)

    def _begin(self) -> None:
        client, _ = self._listening.accept()
        size, streams, _, _ = socket.recv_fds(client, _NUMBER_BYTES, 3)
        if not size:
            client.close()
            return
        asked = client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        imported = os.memfd_create("imported")
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            self._listening.close()
            client.close()
            _run(asked, streams=streams, imported=imported)
        for each in streams:
            os.close(each)
        with suppress(OSError):
            client.sendall(pid.to_bytes(_NUMBER_BYTES, "big"))
        command = _Command(client=client, pid=pid, ended=os.pidfd_open(pid), imported=imported)
        self._selector.register(command.ended, selectors.EVENT_READ, command)
        self._selector.register(client, selectors.EVENT_READ, command)

    def _end(self, command: _Command) -> None:
        """Pass on how the command has ended, and import for the next ones what it has imported."""
        status = os.waitstatus_to_exitcode(os.waitpid(command.pid, 0)[1])
        for each in (command.ended, command.client):
            with suppress(KeyError):
                self._selector.unregister(each)
        with suppress(OSError):
            command.client.sendall(status.to_bytes(_NUMBER_BYTES, "big", signed=True))
        command.client.close()
        os.close(command.ended)
        os.lseek(command.imported, 0, os.SEEK_SET)
        with os.fdopen(command.imported, encoding="utf-8") as names:
            for name in names.read().split():
                with suppress(ImportError):
                    import_module(name)


def _run(asked: bytes, *, streams: Sequence[int], imported: int) -> NoReturn:
    """Be the command, from the process that was forked for it."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    # The server's own were made for other files: whether these seek, and whether they are terminals.
    encoding = sys.stdout.encoding
    sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False)
    folder, count, *rest = asked.split(b"\0")
    words = [os.fsdecode(each) for each in rest[: int(count)]]
    os.chdir(folder)
    os.environ.clear()
    for each in rest[int(count) :]:
        name, _, value = os.fsdecode(each).partition("=")
        os.environ[name] = value
    time.tzset()
    program, sys.argv = Path(words[0]).name, words
    known = set(sys.modules)
    status = _status(program)
    # What Python does at an end, but for the objects of 1,000 modules.
    threading._shutdown()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stderr.flush()
    os.write(imported, " ".join(name for name in sys.modules if name not in known).encode())
    os._exit(status)


def _status(program: str) -> int:
    try:
        getattr(app, program)()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as Python prints it at the end of a program
        traceback.print_exc()
    return 1


def _main(path: str) -> None:
    # Its standard input ends with the process of the tests; commands have streams of their own.
    alive = os.dup(0)
    sys.path.remove(str(_ROOT))
    # What a command starts with `multiprocessing` imports it as it would that of the installed program.
    sys.modules["__main__"] = import_module("dovetail_cli.__main__")
    server = _Server(path)
    print(_READY, end="", flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    server.serve(until_end_of=alive)
    shutil.rmtree(Path(path).parent)


if __name__ == "__main__":
    _main(sys.argv[1])
