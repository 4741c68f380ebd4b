"""A user's machine with a queue of its own: commands are typed into a shell, and real processes run."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dovetail_cli.cluster import audit
from dovetail_sandbox import cluster
from dovetail_sandbox.processes import processes
from tests import commands
from tests.asked import has_ended, row_of
from tests.polling import until

# `gflowd up` starts a control plane, on a machine that may be busy.
COMMAND_SECONDS = 400.0
# Commands that start what lives on.
_INSTALLED = frozenset({"gflowd", "sandbox"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A user's machine with a queue of its own: commands are typed in `work`."""

    work: Path
    environment: Mapping[str, str]

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """The outcome of a command, whatever it is; `more` are further variables."""
        program = [sys.executable, "-m", "dovetail_cli"] if words[0] in _INSTALLED else commands.dovetail()
        return subprocess.run(
            [*program, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
            cwd=self.work,
            env={**self.environment, **more},
        )

    def __call__(self, *words: str, **more: str) -> str:
        """Standard output; the command must do what it is asked."""
        done = self.run(*words, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: str, **more: str) -> str:
        """The number of a job."""
        printed = self("gbatch", *words, **more)
        found = re.fullmatch(r"Submitted batch job (\d+)\n", printed)
        assert found, printed
        return found[1]

    def show(self, job: str) -> dict[str, Any]:
        """The job's row."""
        return row_of(job, kubeconfig=cluster.get().kubeconfig)

    def ended(self, job: str) -> dict[str, Any]:
        """The job once it has ended."""
        return row_of(job, kubeconfig=cluster.get().kubeconfig, holds=has_ended)

    def log(self, job: str) -> str:
        return Path(self.environment["XDG_DATA_HOME"], "gflow", "logs", f"{job}.log").read_text()

    def printed(self, job: str, text: str) -> None:
        """Wait until the job has printed a text."""
        path = Path(self.environment["XDG_DATA_HOME"], "gflow", "logs", f"{job}.log")
        until(lambda: path.exists() and text in path.read_text(), what=lambda: str(self.show(job)))

    def pod_uid(self, job: str) -> str:
        """The UID of the pod that runs a job, from its environment."""
        folder = cluster.get().folder / "local-node" / "runs"
        number = f"DOVETAIL_JOB_ID={job}".encode()
        return next(path.parent.name for path in folder.glob("*/execute") if number in path.read_bytes().split(b"\0"))


@contextmanager
def new_machine(folder: Path, **more: str) -> Iterator[Machine]:
    """A machine whose queue is up, with further variables; at the end, nothing of it stays but logs."""
    with empty_machine(folder, **more) as made:
        assert "Jobs run on this machine" in made("gflowd", "up")
        yield made
        report = audit.prove(kubeconfig=str(cluster.get().kubeconfig), context=None)
        assert not report.items


@contextmanager
def empty_machine(folder: Path, **more: str) -> Iterator[Machine]:
    """A machine on which nothing is up yet, with further variables; at the end, nothing of its sandbox stays."""
    (folder / "work").mkdir()
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    kept = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "DOVETAIL_SANDBOX"}}
    made = Machine(work=folder / "work", environment={**kept, **own, **more})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", own["XDG_STATE_HOME"])
        try:
            yield made
        finally:
            sandbox = cluster.get().folder
            print(made("gflowd", "down", "--purge"))
        assert processes.of_sandbox(sandbox) == []
        assert not sandbox.exists()


def kubectl() -> list[str]:
    """The sandbox's own kubectl, as its administrator."""
    return [str(kubectl_program()), f"--kubeconfig={cluster.get().kubeconfig}"]


def kubectl_program() -> Path:
    """The kubectl of all sandboxes."""
    return next((Path.home() / ".cache" / "dovetail" / "bin").glob("kubectl-*/kubectl"))


def printed(machine: Machine, *words: str) -> str:
    """What a person sees of a command, whatever its outcome is."""
    done = machine.run(*words)
    return f"$ {' '.join(words)}\n{done.stdout}{done.stderr}"
