"""A supervisor for tests."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dovetail.process.identity import ProcessId
from dovetail_sandbox import state
from dovetail_sandbox.processes import processes
from dovetail_sandbox.state import Component, Desired, Observed

Supervisor = subprocess.Popen[bytes]


class Harness:
    """A supervisor and its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: Supervisor | None = None
        self.one_process = False

    def component(self, name: str, script: str, **more: object) -> Component:
        fields = {"name": name, "argv": ["/bin/sh", "-c", script], "log": str(self.folder / f"{name}.log"), **more}
        return msgspec.convert(fields, Component)

    def start(
        self, *components: Component, adopt: Path | None = None, one_process: bool = False, **environment: str
    ) -> None:
        self.one_process = one_process
        self.desire(*components, adopt=adopt)
        command = [sys.executable, "-m", "dovetail_sandbox.processes.supervisor", str(self.folder)]
        self.process = subprocess.Popen(command, env={processes.MARK: str(self.folder), **environment})

    def desire(self, *components: Component, adopt: Path | None = None) -> None:
        place = str(adopt) if adopt else ""
        wanted = Desired(components=list(components), adopt=place, adopt_logs=place, one_process=self.one_process)
        state.write_desired(self.folder, desired=wanted)
        if self.process:
            self.process.send_signal(signal.SIGHUP)

    def until(self, name: str, holds: Callable[[Observed], bool]) -> Observed:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            found = state.read_observed(self.folder).get(name)
            if found and holds(found):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{name} is still {state.read_observed(self.folder).get(name)}")

    def pid(self, name: str) -> ProcessId:
        process = self.until(name, lambda each: each.state == "running").process
        assert process
        return process


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    if harness.process:
        harness.process.terminate()
        assert harness.process.wait(timeout=60) == 0
    assert processes.of_sandbox(tmp_path) == []
