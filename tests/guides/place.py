"""Where blocks run: a queue of one machine, or a sandbox. Both answer calls without a token as one account."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.asked import Row, row_of, rows
from tests.polling import PATIENCE_SECONDS, until

HERE: Final = Path(__file__).parent
_HOST: Final = "http://localhost:8000"
_SCRIPT: Final = re.compile(r"\bpython (\w+\.py)")
_CONFIG: Final = re.compile(r"--config (\w+\.yaml)")
_HOLD: Final = "hold"
# Nine submissions follow each other in one block, on a machine with two cores.
_BLOCK_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A control plane, and the shell of its user: commands run in `work`."""

    cluster: Cluster
    work: Path
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        return self.cluster.status().gateway

    def bash(self, text: str) -> subprocess.CompletedProcess[str]:
        """The outcome of a block as commands; the programs that it names are there, and its host is the gateway."""
        for name in _SCRIPT.findall(text):
            (self.work / name).write_text((HERE / "user_script.py").read_text())
        for name in _CONFIG.findall(text):
            (self.work / name).write_text("lr: 0.1\n")
        return subprocess.run(
            ["bash", "-c", text.replace(_HOST, self.url)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=_BLOCK_SECONDS, cwd=self.work, env=dict(self.environment),
        )  # fmt: skip

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        program = next((Path.home() / ".cache" / "dovetail" / "bin").glob("kubectl-*/kubectl"))
        command = [str(program), f"--kubeconfig={self.cluster.kubeconfig}", *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "already exists" in done.stderr, done.stderr
        return done.stdout

    def jobs(self) -> list[Row]:
        """All jobs by number."""
        return rows(kubeconfig=self.cluster.kubeconfig)

    def show(self, number: int, *, holds: Callable[[Row], bool] = bool) -> Row:
        """The job's row, once it is as it should be."""
        return row_of(str(number), kubeconfig=self.cluster.kubeconfig, holds=holds)

    def ask(self, method: str, path: str, *, body: Any = None) -> Any:
        """The JSON answer of the gateway, whatever its status."""
        return httpx2.request(method, self.url + path, json=body, timeout=PATIENCE_SECONDS).json()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Programs of jobs run as long as the block."""
        (self.work / _HOLD).touch()
        try:
            yield
        finally:
            (self.work / _HOLD).unlink()

    @contextmanager
    def busy(self, gpus: Iterable[int]) -> Iterator[list[int]]:
        """Jobs on so many GPUs each, of which the first ones run; their numbers."""
        numbers = []
        for count in gpus:
            done = self.bash(
                f"gbatch --gpus {count} sh -c 'echo CUDA_VISIBLE_DEVICES: $CUDA_VISIBLE_DEVICES; sleep 600'"
            )
            numbers.append(int(done.stdout.split()[-1]))
        if numbers:
            self.show(numbers[0], holds=lambda row: row["phase"] == "Running")
        yield numbers

    def clear(self) -> None:
        """Nothing of a block stays: no job, no allocation, no task."""
        self.kubectl("delete", "gpujobs", "--all", "--namespace=default")
        self.kubectl("wait", "--for=delete", "pods", "--all", "--namespace=default", "--timeout=60s")


def place_at(cluster: Cluster, *, work: Path, **more: str) -> Place:
    """The place of a control plane that answers calls without a token."""
    path = f"{HERE / 'programs'}:{commands.folder()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "GUIDES_KUBECONFIG": str(cluster.kubeconfig), **more}
    found = Place(cluster=cluster, work=work, environment={**own, "PATH": path})
    until(lambda: "success" not in found.ask("GET", "/api/v1/gpu/status"))
    until(lambda: bool(found.ask("GET", "/api/v2/resources/gpu").get("devices")))
    return found
