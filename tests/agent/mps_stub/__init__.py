"""Our stand-in for MPS's control program, made executable, with the pipe directory that it plays in."""

import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("control.py")


class MpsStub:
    """One node's MPS: its program and its directories, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "pipe"
        self.log = folder / "log"
        self.clients = folder / "clients"
        for each in (self.pipe, self.log, self.clients):
            each.mkdir(parents=True)
        self.program = folder / "nvidia-cuda-mps-control"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {SOURCE} "$@"\n')
        self.program.chmod(0o755)

    def play(self, *lines: str) -> None:
        """From now on."""
        (self.pipe / "scenario").write_text("\n".join(lines) + "\n")

    @property
    def commands(self) -> list[str]:
        """What the daemon was told, without the questions that are asked all the time."""
        try:
            said = (self.pipe / "commands").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [command for command in said if not command.startswith("get_")]
