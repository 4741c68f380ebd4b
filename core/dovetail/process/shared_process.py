"""Several programs in one process: each has its threads, its environment and its output.

A program with a process to itself finds these in `os.environ`, `sys.stdout` and `sys.stderr`. After `install`, the same
names lead to those of the program whose thread asks, so a program is written once. The threads of a program are the one
that `start` makes, and all that these start, as contexts are inherited with `-X thread_inherit_context` of Python 3.14.
"""

import errno
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TextIO

Main = Callable[[Sequence[str]], object]
_OUTPUT_MODE: Final = 0o600
_of_thread: Final = threading.local()


class Program:
    """A program of this process: its name, the words of its command line, its environment and its log."""

    def __init__(self, name: str, *, words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        """Open the log, to which all output is appended. Raises `OSError`."""
        self.name = name
        self.words = tuple(words)
        self.environ = dict(environ)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _OUTPUT_MODE)
        self.output: TextIO = open(handle, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: PTH123, SIM115 - of a descriptor, for the program's life
        self._lock = threading.Lock()
        self._ending = False
        self._listener: Callable[[], object] | None = None

    def start(self, main: Main, *, ended: Callable[[int], None]) -> None:
        """Run `main` in a thread, and call `ended` there with its exit code.

        Raises `OSError` if no thread can be started.
        """
        thread = threading.Thread(
            target=_as, args=(self,), kwargs={"run": partial(self._run, main, ended=ended)}, name=self.name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self.output.close()
            raise OSError(errno.EAGAIN, str(error)) from error

    def end(self) -> None:
        """Ask the program to end, as SIGTERM does in a process of its own."""
        with self._lock:
            self._ending = True
            if self._listener is not None:
                self._listener()

    @contextmanager
    def listening(self, listener: Callable[[], object]) -> Iterator[None]:
        """Within the block, `end` calls the listener, in any thread; at once if it was called before."""
        with self._lock:
            self._listener = listener
            if self._ending:
                listener()
        try:
            yield
        finally:
            with self._lock:
                self._listener = None

    def _run(self, main: Main, *, ended: Callable[[int], None]) -> None:
        code = 1
        try:
            code = _exit_code(main(self.words))
        except SystemExit as error:
            code = _exit_code(error.code)
        except BaseException:  # noqa: BLE001 - whatever ends a program, its process goes on
            traceback.print_exc()
        finally:
            # The disk of the log may be full, and its other threads may still print.
            with suppress(OSError):
                self.output.flush()
            ended(code)


def current() -> Program | None:
    """The program of this thread; None in a process of one program."""
    return getattr(_of_thread, "program", None)


def install() -> None:
    """Let environment and output be those of the thread's program, for the rest of this process."""
    os.environ = _Environment(os.environ)  # type: ignore[assignment]  # noqa: B003 - programs use it as a mapping
    sys.stdout, sys.stderr = _Output(sys.stdout), _Output(sys.stderr)
    threading.Thread.start = _inheriting(threading.Thread.start)  # type: ignore[method-assign, assignment]  # see the module


def _inheriting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def started(thread: threading.Thread) -> None:
        if program := current():
            thread.run = partial(_as, program, run=thread.run)  # type: ignore[method-assign]  # see `install`
        start(thread)

    return started


def _as(program: Program, *, run: Callable[[], None]) -> None:
    _of_thread.program = program
    run()


def _exit_code(ended: object) -> int:
    """As Python has it for `sys.exit(ended)`."""
    if ended is None or isinstance(ended, int):
        return ended or 0
    sys.stderr.write(f"{ended}\n")
    return 1


class _Environment(MutableMapping[str, str]):
    """The variables of the thread's program; those of the process in a thread of none."""

    def __init__(self, own: MutableMapping[str, str]) -> None:
        self._own = own

    def _now(self) -> MutableMapping[str, str]:
        program = current()
        return self._own if program is None else program.environ

    def __getitem__(self, name: str) -> str:
        return self._now()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._now()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._now()[name]

    def __iter__(self) -> Iterator[str]:
        # A thread of the same program may set a variable meanwhile.
        return iter(list(self._now()))

    def __len__(self) -> int:
        return len(self._now())

    def copy(self) -> dict[str, str]:
        """As `os.environ` has it."""
        return dict(self._now())


class _Output(io.TextIOBase):
    """The log of the thread's program; the stream of the process in a thread of none."""

    def __init__(self, own: TextIO) -> None:
        self._own = own

    def _now(self) -> TextIO:
        program = current()
        return self._own if program is None else program.output

    def write(self, text: str) -> int:
        return self._now().write(text)

    def flush(self) -> None:
        self._now().flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._now().fileno()
