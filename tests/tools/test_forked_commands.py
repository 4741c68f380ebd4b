"""The commands of `tests.commands` are what is installed: words, folder, environment, streams, and every end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.polling import until

INSTALLED = [sys.executable, "-m", "dovetail_cli"]
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: silent, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: ada, user: {{token: t}}}}]
contexts: [{{name: silent, context: {{cluster: silent, user: ada}}}}]
current-context: silent
"""


def outcome(program: list[str], line: str, **how: Any) -> tuple[int, str, str]:
    done = subprocess.run([*program, *line.split()], capture_output=True, text=True, check=False, **how)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "line", ["", "gqueue --help", "gqueue --nonsense", "nonsense", "gjob", "gqueue", "gbatch -n a", "config show"]
)
def test_a_command_prints_and_ends_as_the_installed_one(line: str, tmp_path: Path) -> None:
    how = {"cwd": tmp_path, "env": {**os.environ, "KUBECONFIG": "none", "XDG_CONFIG_HOME": str(tmp_path)}}
    assert outcome(commands.dovetail(), line, **how) == outcome(INSTALLED, line, **how)


def test_each_command_has_its_own_folder_environment_and_input(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        how = {"cwd": tmp_path / name, "env": {"XDG_CONFIG_HOME": name, "PATH": os.environ["PATH"]}}
        assert outcome(commands.dovetail(), f"config set image {name}", **how)[0] == 0
        assert f"image: {name}" in (tmp_path / name / name / "dovetail" / "config.yaml").read_text()
    job = "kind: GPUJob\napiVersion: dovetail.dev/v1beta1\n"
    said = [outcome(program, "quota plan -", input=job) for program in (commands.dovetail(), INSTALLED)]
    assert said[0] == said[1]


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", socket.socket]]:
    """A command that waits for an answer, and its connection."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=silent.getsockname()[1]))
        command = [*commands.dovetail(), "gqueue", "--kubeconfig", str(kubeconfig)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                yield started, connection


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command(
    waiting: tuple["subprocess.Popen[bytes]", socket.socket], number: signal.Signals
) -> None:
    started, _ = waiting
    started.send_signal(number)
    assert started.wait(60) == {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number]


def test_a_command_that_is_killed_closes_its_connections(
    waiting: tuple["subprocess.Popen[bytes]", socket.socket],
) -> None:
    started, connection = waiting
    started.kill()
    until(lambda: connection.recv(65_536) == b"")
