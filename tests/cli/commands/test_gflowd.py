"""gflowd, as far as it goes without a sandbox."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail_cli import sandboxes
from dovetail_cli.app import run
from dovetail_cli.nodes import user_service


def gflowd(*words: str) -> int:
    return run("gflowd", arguments=list(words), prog="gflowd")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_status_without_a_sandbox_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert gflowd("status") == 3
    assert "there is no sandbox 'default'" in capsys.readouterr().err


def test_down_without_a_sandbox_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert gflowd("down") == 0
    assert capsys.readouterr().out == "The queue is down.\n"


def test_gflowd_alone_shows_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert gflowd() == 2
    told = capsys.readouterr().out
    assert all(word in told for word in ("up", "status", "down"))


def test_another_cluster_in_kubeconfig_is_noticed(tmp_path: Path) -> None:
    ours = str(sandboxes.kubeconfig("default"))
    assert sandboxes.is_meant("default", environ={})
    assert not sandboxes.is_meant("other", environ={})
    assert sandboxes.is_meant("default", environ={"KUBECONFIG": f"{ours}:{tmp_path}/else"})
    assert not sandboxes.is_meant("default", environ={"KUBECONFIG": f"{tmp_path}/else:{ours}"})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--train", "a && b"), "no shell reads '&&'"),
        (("--workdir", "."), "--workdir .: it is the folder of --train and --infer, and neither is given"),
        (("--train", "t", "--workdir", "/none"), "--workdir /none: there is no such folder"),
        (("--infer", "t", "--simulated"), "on simulated nodes nothing runs"),
    ],
)
def test_up_refuses_what_no_task_could_run_before_anything_starts(
    words: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gflowd("up", *words) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_unit_that_is_printed_is_one_that_systemd_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gflowd("service", "install", "--print") == 0
    unit = tmp_path / user_service.NAME
    unit.write_text(capsys.readouterr().out, encoding="utf-8")
    assert [line for line in unit.read_text().splitlines() if line.endswith('gflowd" up')]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    done = subprocess.run(
        ["systemd-analyze", "--user", "--no-pager", "verify", unit],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    assert user_service.NAME not in done.stderr, done.stderr


@pytest.mark.parametrize("path", ["/opt/100%/bin/gflowd", '/opt/a "b"/gflowd', "/opt/back\\slash/gflowd"])
def test_a_path_with_what_systemd_interprets_stays_a_path(path: str) -> None:
    text = user_service.unit(environ={"PATH": "/usr/bin", "HOME": "/root"}, gflowd=path)
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    word, command = line.removeprefix("ExecStart=").rsplit(" ", 1)
    assert (shlex.split(word.replace("%%", "%")), command) == ([path], "up")
    assert [line for line in text.splitlines() if line.startswith("Environment=")] == ['Environment="PATH=/usr/bin"']


def test_a_unit_that_is_not_there_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert gflowd("service", "remove") == 3
    assert "there is no such unit; gflowd service install writes it" in capsys.readouterr().err


def test_a_machine_without_systemd_is_told_what_to_do_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gflowd("service", "install") == 3
    assert "run `gflowd up` from your login script instead" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()


def test_a_systemd_that_does_not_answer_leaves_no_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\necho Failed to connect to bus: No medium found >&2\nexit 1\n")
    systemctl.chmod(0o755)
    assert gflowd("service", "install") == 3
    assert capsys.readouterr().err == (
        "dovetail: no systemd of your user runs here (systemctl --user show-environment: Failed to connect to bus: "
        "No medium found): run `gflowd up` from your login script instead\n"
    )
    assert not (tmp_path / "config").exists()
    # One that an earlier session has left goes.
    user_service.path().parent.mkdir(parents=True)
    user_service.path().write_text("")
    link = user_service.path().parent / "default.target.wants" / user_service.NAME
    link.parent.mkdir()
    link.symlink_to(user_service.path())
    assert gflowd("service", "remove") == 0
    assert not user_service.path().exists()
    assert not link.is_symlink()


def test_the_systemd_of_the_user_is_found_in_a_session_that_does_not_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$XDG_RUNTIME_DIR $*" >>"{tmp_path}/asked"\n')
    (tmp_path / "systemctl").chmod(0o755)
    user_service.path().parent.mkdir(parents=True)
    user_service.path().write_text("")
    assert gflowd("service", "remove") == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert f"/run/user/{os.getuid()} --user disable --now {user_service.NAME}" in asked
