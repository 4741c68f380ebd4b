"""Dovetail's own programs of a local queue in one process, which the supervisor starts and tells what to run.

On one machine each of them would spend half a second of CPU on the same imports, and keep 40 to 70 MiB of the same
modules. Each program is a thread with an event loop of its own, so one that computes for long delays the others by the
interpreter's switch interval. The local node is not among them, nor the agent of a machine with a vendor's library:
they load the library, which can hang, crash and be replaced, and the local node starts the jobs.

Start it with `python -m dovetail_sandbox.processes.one_process <fd>`. Commands come as lines on standard input, and
the end of a program goes as a line to the descriptor, followed by SIGHUP to the supervisor.
"""

import ctypes
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from dovetail.decoding import UnreadableError, decode
from dovetail.process import identity, shared_process
from dovetail.process.identity import ProcessId
from dovetail.process.shared_process import Main, Program
from dovetail_sandbox.processes import processes
from dovetail_sandbox.state import Component

LOG: Final = "dovetail"  # of the process itself; each program has its own
# By the names of their commands. Each has a function `main` that takes the words of its command line.
_MAINS: Final[Mapping[str, str]] = {
    "dovetail-operator": "dovetail_operator.main",
    "dovetail-extender": "dovetail_extender.main",
    "dovetail-gateway": "dovetail_gateway.main",
    "dovetail-agent": "dovetail_agent.main",
    "dovetail-webhook": "dovetail_webhook.main",
    "dovetail-certificates": "dovetail_certificates.main",
}
_VOLUME: Final = "dovetail_sandbox.installed.secret_volume"
# What they load later than their main module, in every local queue.
_LATER: Final = (
    "structlog",
    "numpy.ma",
    "sqlite3",
    _VOLUME,
    "dovetail_operator.history.service",
    "dovetail_gateway.samples.store",
    "sqlalchemy.dialects.sqlite",
)
# Optional parts of kopf and structlog: a login by the official client, and colours on a terminal. A local queue's
# kubeconfigs have tokens, and its logs are files. They take 10 MiB.
_LEFT_OUT: Final = ("kubernetes", "rich")
_AS_MODULE: Final = ("-P", "-m")
_REPORTS: Final = 3  # descriptor of the reports in the process
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_NAME: Final = 15
# As many as the bounds on connections and handshakes of its servers add up to. A login often allows 1,024, and another
# user could take them from all programs by connections to one.
_FILES: Final = 6144
_ENVIRONMENT: Final = {
    # NumPy's threads would keep memory.
    "OPENBLAS_NUM_THREADS": "1",
    # glibc gives each thread a heap of its own, up to eight for each CPU. Here mostly one thread at a time allocates.
    "MALLOC_ARENA_MAX": "1",
}


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the supervisor says: run a program, or end the one of that name."""

    start: Component | None = None
    end: str = ""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A report: this program has ended with this exit code."""

    name: str
    code: int


def module_of(component: Component) -> str | None:
    """The module whose `main` is the component; None for a program that has a process of its own."""
    program, *words = component.argv
    if component.apart:
        return None
    if program == sys.executable and tuple(words[:2]) == _AS_MODULE:
        return words[2] if words[2] == _VOLUME else None
    path = Path(program)
    return _MAINS.get(path.name) if path.parent == Path(sys.executable).parent else None


@dataclass(slots=True, kw_only=True)
class OneProcess:
    """The process as the supervisor has it: whose number it is, and both pipes."""

    process: ProcessId
    _commands: int
    _reports: int
    _partial: bytes = field(default=b"", init=False)

    @classmethod
    def started(cls, folder: Path) -> "OneProcess":
        """Start it for the sandbox in `folder`. Raises `OSError`."""
        read_commands, write_commands = os.pipe()
        read_reports, write_reports = os.pipe()
        os.set_blocking(read_reports, False)
        log = str(folder / "logs" / f"{LOG}.log")
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", __spec__.name, str(_REPORTS)],
                {**os.environ, **_ENVIRONMENT},
                file_actions=[
                    *processes.output_to(log),
                    (os.POSIX_SPAWN_DUP2, read_commands, 0),
                    (os.POSIX_SPAWN_DUP2, write_reports, _REPORTS),
                ],
                setsid=True,
                setsigmask=_SIGNALS,
            )
        except OSError:
            os.close(write_commands)
            os.close(read_reports)
            raise
        finally:
            os.close(read_commands)
            os.close(write_reports)
        process = identity.identify(pid) or ProcessId(pid, 0)
        return cls(process=process, _commands=write_commands, _reports=read_reports)

    def start(self, component: Component) -> None:
        """Run a program. Raises `OSError` if the process has ended."""
        self._tell(Command(start=component))

    def end(self, name: str) -> None:
        """Ask a program to end."""
        with suppress(OSError):
            self._tell(Command(end=name))

    def _tell(self, command: Command) -> None:
        os.write(self._commands, msgspec.json.encode(command) + b"\n")

    def ended(self) -> list[Ended]:
        """The programs that have ended since the last call."""
        with suppress(BlockingIOError):  # until there is no more
            while more := os.read(self._reports, 65536):
                self._partial += more
        *lines, self._partial = self._partial.split(b"\n")
        return [decode(line, as_type=Ended) for line in lines]

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        os.close(self._commands)
        os.close(self._reports)


class _Programs:
    """The programs that run here. The thread `commands` starts them; the main thread ends all of them."""

    def __init__(self, *, reports: int) -> None:
        self._reports = reports
        self._supervisor = os.getppid()
        self._running: dict[str, Program] = {}
        self._lock = threading.Lock()
        self._none_left = threading.Condition(self._lock)

    def follow(self, commands: Iterator[bytes]) -> None:
        """Do what each line says. One that cannot be read is said in the log of the process."""
        for line in commands:
            try:
                command = decode(line, as_type=Command)
            except UnreadableError as error:
                sys.stderr.write(f"command ignored: {error}\n")
                continue
            if command.start is not None:
                self._start(command.start)
            elif program := self._running.get(command.end):
                program.end()

    def _start(self, component: Component) -> None:
        module = module_of(component)
        assert module is not None, f"the supervisor has given us {component.argv}"
        # As -m does it, or the command's script: the words after the program.
        words = component.argv[4:] if component.argv[0] == sys.executable else component.argv[1:]
        try:
            program = Program(
                component.name, words=words, environ={**os.environ, **component.env}, log=Path(component.log)
            )
            with self._lock:
                self._running[component.name] = program
            program.start(_main(module), ended=lambda code: self._ended(component.name, code=code))
        except OSError as error:
            sys.stderr.write(f"{component.name}: {error}\n")
            self._ended(component.name, code=1)

    def _ended(self, name: str, *, code: int) -> None:
        with self._lock:
            self._running.pop(name, None)
            self._none_left.notify_all()
        self._report(Ended(name=name, code=code))

    def _report(self, ended: Ended) -> None:
        with suppress(OSError):
            # Less than PIPE_BUF, so lines of several threads do not mix.
            os.write(self._reports, msgspec.json.encode(ended) + b"\n")
            # Without its supervisor, the program stays ended until the next `up`.
            if os.getppid() == self._supervisor:
                os.kill(self._supervisor, signal.SIGHUP)

    def end(self) -> None:
        """End all, and return when they have ended."""
        with self._lock:
            for program in list(self._running.values()):
                program.end()
            self._none_left.wait_for(lambda: not self._running)


def _main(module: str) -> Main:
    """The program of a module, which is imported in the program's thread: an error is in the program's log."""
    return lambda words: import_module(module).main(words)


def allow_files() -> None:
    """Let the process open as many files as its programs need, where the limit can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def load() -> None:
    """Import all that the programs need, while the control plane starts."""
    sys.modules.update(dict.fromkeys(_LEFT_OUT))  # type: ignore[arg-type]  # None: not to be imported
    for name in (*_MAINS.values(), *_LATER):
        # What cannot be imported fails in the thread of the program that needs it.
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Run what the supervisor says, until SIGTERM or SIGINT."""
    allow_files()
    reports = int(sys.argv[1])
    os.set_inheritable(reports, False)
    programs = _Programs(reports=reports)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"dovetail", 0, 0, 0)
    commands = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor, for what the programs start
        os.dup2(nothing.fileno(), 0)
    shared_process.install()
    load()
    threading.Thread(target=programs.follow, args=(commands,), name="commands", daemon=True).start()
    # Blocked since the start, so that the threads do not take them. SIGHUP is the supervisor's alone.
    while signal.sigwait(_SIGNALS) == signal.SIGHUP:
        pass
    programs.end()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
