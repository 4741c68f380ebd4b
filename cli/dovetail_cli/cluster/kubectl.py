"""kubectl, for streams into containers: it implements their protocols, and logins."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Final

from dovetail.kube.auth.connection import default_kubeconfigs
from dovetail_cli.ui.errors import CommandError

_LINES: Final = 3


class FailedError(CommandError):
    """kubectl, or what it ran in a container, failed; `lines` are its words."""

    def __init__(self, lines: Sequence[str], *, code: int) -> None:
        self.lines = tuple(lines)
        super().__init__("; ".join(lines[-_LINES:]) or f"kubectl ended with code {code}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """The program, and the options that make it use the cluster of a command."""

    program: str
    options: tuple[str, ...] = ()

    def words(self, *words: str) -> list[str]:
        """A command line."""
        return [self.program, *self.options, *words]

    def become(self, *words: str) -> None:
        """Replace this process with kubectl."""
        os.execv(self.program, ["kubectl", *self.options, *words])  # noqa: S606 - no shell is wanted


def find(*, kubeconfig: str | None, context: str | None, needed_for: str) -> Kubectl:
    """kubectl on PATH. Raises `CommandError` without one, naming what it is `needed_for`."""
    program = shutil.which("kubectl")
    if program is None:
        raise CommandError(f"{needed_for} runs kubectl, and there is none on PATH")
    named = (("kubeconfig", _file(kubeconfig)), ("context", context))
    return Kubectl(program=program, options=tuple(f"--{key}={value}" for key, value in named if value))


@contextmanager
def fed(command: Sequence[str]) -> Iterator[IO[bytes]]:
    """Run a command, and yield its standard input. Raises `FailedError` if it fails."""
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said) as running:
            assert running.stdin is not None
            # A command that has ended says why on standard error.
            with suppress(BrokenPipeError), running.stdin as stdin:
                yield stdin
        _check(running.returncode, said=said)


@contextmanager
def read_from(command: Sequence[str]) -> Iterator[IO[bytes]]:
    """Run a command, and yield its standard output. Raises `FailedError` if it fails."""
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said) as running:
            assert running.stdout is not None
            try:
                yield running.stdout
            except BaseException:
                # What it sends is not read to its end, which a hostile container may never send.
                running.kill()
                raise
        _check(running.returncode, said=said)


def _check(code: int, *, said: IO[bytes]) -> None:
    if code == 0:
        return
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    # kubectl's own last line, which only repeats the exit code.
    kept = [line for line in lines if not line.startswith("command terminated with exit code")]
    raise FailedError(kept, code=code)


def _file(kubeconfig: str | None) -> str | None:
    """The kubeconfig to pass to kubectl, so that it uses the same cluster as these commands."""
    if kubeconfig or os.environ.get("KUBECONFIG"):
        return kubeconfig
    return next((str(path) for path in default_kubeconfigs() if path.exists()), None)
