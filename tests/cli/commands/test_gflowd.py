"""gflowd, as far as it goes without a sandbox."""

from pathlib import Path

import pytest

from dovetail_cli import sandboxes
from dovetail_cli.app import run


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
    assert capsys.readouterr().out == "The local sandbox is down.\n"


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
