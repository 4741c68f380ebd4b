"""Runs MPS's control daemon as a child process, and restarts it with a growing delay."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dovetail.logs import get_logger

log = get_logger(__name__)

_STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The delay before a restart: doubles from `first_seconds` to `longest_seconds`.

    It starts from `first_seconds` again after a run of `steady_seconds`.
    """

    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    steady_seconds: float = 60.0


class Daemon:
    """One foreground process with our own output. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str],
        clock: Callable[[], float],
        pace: Pace = Pace(),
    ) -> None:
        self.starts_total = 0
        self._command = list(command)
        self._variables = dict(variables)
        self._clock = clock
        self._pace = pace
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._due_at = 0.0
        self._wait_seconds = pace.first_seconds

    @property
    def pid(self) -> int | None:
        """Its PID; None while it does not run."""
        return None if self._child is None else self._child.pid

    @property
    def seconds_up(self) -> float:
        """For how many seconds it has been running."""
        return self._clock() - self._started_at if self._child else 0.0

    def tend(self) -> str:
        """Start the daemon when it is due. Return once how it ended; empty otherwise."""
        if self._child is not None:
            code = self._child.poll()
            return "" if code is None else self._over(_how(code))
        if self._clock() < self._due_at:
            return ""
        return self._start()

    def end(self, why: str) -> str:
        """End a daemon that is of no use. It restarts after the delay. Return how it ended."""
        self.stop()
        return self._over(why)

    def stop(self) -> None:
        """End the daemon: SIGTERM first, SIGKILL if that has no effect within 10 s."""
        if self._child is None:
            return
        self._child.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_STOP_SECONDS)
            return
        self._child.kill()
        self._child.wait()

    def _start(self) -> str:
        try:
            self._child = subprocess.Popen(self._command, env=self._variables, stdin=subprocess.DEVNULL)
        except OSError as error:
            return self._over(f"{self._command[0]} cannot be run: {error.strerror}")
        self.starts_total += 1
        self._started_at = self._clock()
        log.info("control daemon started", pid=self._child.pid, starts=self.starts_total)
        return ""

    def _over(self, how: str) -> str:
        if self.seconds_up >= self._pace.steady_seconds:
            self._wait_seconds = self._pace.first_seconds
        log.warning("no control daemon", problem=how, again_in_seconds=self._wait_seconds)
        self._due_at = self._clock() + self._wait_seconds
        self._wait_seconds = min(self._pace.longest_seconds, self._wait_seconds * 2)
        self._child = None
        return how


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
