"""`dovetail uninstall` in a home of its own: what was there, what is left, and what it says of the rest."""

import io
from pathlib import Path

import pytest

from dovetail_cli.app import main
from dovetail_cli.nodes import user_service

OTHERS = (
    ".kube/config",
    ".local/share/other/file",
    ".local/share/gflowers/file",
    ".cache/other/file",
    "work/results.txt",
)
OURS = (
    ".local/state/dovetail/sandboxes/default/logs/operator.log",
    ".local/state/dovetail/sandboxes/big/state.json",
    ".local/share/gflow/logs/1.log",
    ".local/share/gflow-big/logs/1.log",
    ".cache/dovetail/bin/kubectl-v1/kubectl",
    ".cache/dovetail/completion/jobs",
    ".config/dovetail/config.yaml",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'none'}")
    for name in ("STATE", "DATA", "CACHE", "CONFIG"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    for name in (*OTHERS, *OURS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_nothing_of_dovetail_is_left_and_nothing_else_is_touched(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["uninstall", "--yes"]) == 0
    assert files(home) == set(OTHERS)
    said = capsys.readouterr().out
    assert "pip uninstall dovetail-gpu" in said
    assert main(["uninstall"]) == 0
    assert capsys.readouterr().out.startswith("Dovetail has left nothing on this machine.\n")


def test_slurm_s_names_go_and_other_programs_of_these_names_stay(home: Path) -> None:
    folder = home / "bin"
    folder.mkdir()
    (folder / "sbatch").symlink_to("/opt/venv/bin/dovetail")
    (folder / "squeue").symlink_to("/opt/slurm/bin/squeue")
    (folder / "scancel").write_text("")
    assert main(["uninstall", "--yes"]) == 0
    assert {each.name for each in folder.iterdir()} == {"squeue", "scancel"}


def test_a_dry_run_names_all_of_it_and_removes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(home)
    assert main(["uninstall", "--dry-run"]) == 0
    named = [Path(line.partition(": ")[0]) for line in capsys.readouterr().out.splitlines()]
    assert all(any((home / name).is_relative_to(path) for path in named) for name in OURS)
    assert files(home) == before


def test_logs_stay_where_they_are_asked_to(home: Path) -> None:
    assert main(["uninstall", "--yes", "--keep-logs"]) == 0
    assert {name for name in files(home) if name not in OTHERS} == {
        ".local/share/gflow/logs/1.log",
        ".local/share/gflow-big/logs/1.log",
    }


def test_nothing_goes_without_a_yes(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(home)
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: False)
    assert main(["uninstall"]) == 1
    assert (files(home), capsys.readouterr().err) == (before, "dovetail: nothing is removed\n")


def test_a_question_whose_input_has_ended_is_a_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(home)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["uninstall"]) == 1
    said = "dovetail: the question has no answer, so nothing is changed: --yes answers it\n"
    assert (files(home), capsys.readouterr().err.endswith(said)) == (before, True)


def test_what_cannot_be_removed_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda *_args, **_options: None)
    assert main(["uninstall", "--yes"]) == 1
    assert f"cannot be removed: {home}/" in capsys.readouterr().err


def test_the_unit_that_starts_the_queue_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = user_service.path()
    unit.parent.mkdir(parents=True)
    unit.write_text("")
    asked: list[str] = []
    monkeypatch.setattr(user_service, "_check_systemd", lambda: None)
    monkeypatch.setattr(user_service, "_systemctl", lambda *words: asked.append(" ".join(words)))
    assert main(["uninstall", "--yes"]) == 0
    assert asked == ["disable --now dovetail-queue.service", "daemon-reload"]
    assert files(home) == set(OTHERS)
