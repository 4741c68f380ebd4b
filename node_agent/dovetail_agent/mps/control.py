"""Sends commands to MPS's control daemon: its own program reads one from standard input.

ControlError   the daemon did not carry out a command: names the command and the answer
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROGRAM: Final = "nvidia-cuda-mps-control"
_SECONDS: Final = 10.0


class ControlError(Exception):
    """The daemon did not carry out a command."""

    def __init__(self, command: str, *, problem: str) -> None:
        super().__init__(f"{command}: {problem}")


def environment(*, pipe: Path, log: Path) -> dict[str, str]:
    """The environment of the daemon, its clients and the probe: ours without CUDA variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    return kept | {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(log),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


class Control:
    """Sends commands to the daemon of an environment. Each call blocks for at most `seconds`."""

    def __init__(self, variables: Mapping[str, str], *, program: str = PROGRAM, seconds: float = _SECONDS) -> None:
        self._variables = dict(variables)
        self._program = program
        self._seconds = seconds

    def ask(self, command: str) -> str:
        """Send a command and return the daemon's answer. Raises `ControlError`."""
        try:
            done = subprocess.run(
                [self._program],
                input=f"{command}\n",
                capture_output=True,
                text=True,
                errors="replace",
                env=self._variables,
                timeout=self._seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ControlError(command, problem=f"no answer in {self._seconds:g} s") from error
        except OSError as error:
            raise ControlError(command, problem=f"{self._program} cannot be run: {error.strerror}") from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split()) or "nothing"
            raise ControlError(command, problem=f"exit code {done.returncode}, {said}")
        return done.stdout

    def servers(self) -> tuple[int, ...]:
        """PIDs of the servers. Raises `ControlError`."""
        return _numbers(self.ask("get_server_list"))

    def clients(self, server: int) -> tuple[int, ...]:
        """PIDs of a server's clients. Raises `ControlError`."""
        return _numbers(self.ask(f"get_client_list {server}"))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(word) for word in text.split() if word.isdigit()))
