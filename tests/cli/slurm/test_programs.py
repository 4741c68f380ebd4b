"""What runs when one of Slurm's names is typed: our command with its words, its answer as Slurm gives it, its code."""

from collections.abc import Sequence

import pytest

from dovetail_cli import app
from dovetail_cli.slurm import programs
from dovetail_cli.ui.errors import UsageError


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The command lines of ours that ran; each prints two lines and ends with 3."""
    seen: list[tuple[str, ...]] = []

    def run(name: str, *, arguments: Sequence[str], prog: str) -> int:
        seen.append((prog, name, *arguments))
        print("Submitted batch job 42\nJOBID 7")
        return 3

    monkeypatch.setattr(app, "run", run)
    return seen


@pytest.mark.parametrize(
    ("name", "words", "ours", "out"),
    [
        ("squeue", "-u ada", ("squeue", "gqueue", "-u", "ada"), "Submitted batch job 42\nJOBID 7\n"),
        ("squeue", "-h", ("squeue", "gqueue"), "JOBID 7\n"),
        ("sinfo", "--noheader", ("sinfo", "ginfo"), "Submitted batch job 42\nJOBID 7\n"),
        ("scancel", "7", ("scancel", "gcancel", "7"), "Submitted batch job 42\nJOBID 7\n"),
        ("sbatch", "train.sh", ("sbatch", "gbatch", "train.sh"), "Submitted batch job 42\nJOBID 7\n"),
        ("sbatch", "--parsable train.sh", ("sbatch", "gbatch", "train.sh"), "42\n"),
        ("sbatch", "-V", ("sbatch", "gbatch", "--version"), "Submitted batch job 42\nJOBID 7\n"),
        ("squeue", "--version", ("squeue", "gqueue", "--version"), "Submitted batch job 42\nJOBID 7\n"),
    ],
)
def test_a_name_runs_our_command_and_ends_with_its_code(
    typed: list[tuple[str, ...]],
    capsys: pytest.CaptureFixture[str],
    name: str,
    words: str,
    ours: tuple[str, ...],
    out: str,
) -> None:
    assert programs.run(name, arguments=words.split()) == 3
    plain = [word for word in typed[0] if word != "--env" and not word.startswith("SLURM_")]
    assert tuple(plain) == ours
    assert capsys.readouterr().out == out


def test_a_submission_without_a_number_prints_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "run", lambda *_args, **_options: 1)
    assert programs.run("sbatch", arguments=["--parsable", "train.sh"]) == 1
    assert capsys.readouterr().out == ""


def test_options_without_a_counterpart_are_named_and_the_command_runs(
    typed: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    programs.run("sbatch", arguments=["--exclusive", "--mem-per-gpu", "8G", "train.sh"])
    said = capsys.readouterr().err
    assert "dovetail: ignored --exclusive: Dovetail has no equivalent\n" in said
    assert "dovetail: ignored --mem-per-gpu: no option there requests a GPU\n" in said
    assert len(typed) == 1


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_help_runs_nothing(name: str, typed: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.run(name, arguments=["--help"]) == 0
    assert (typed, capsys.readouterr().out.startswith(f"{name}: g")) == ([], True)


def test_a_line_that_cannot_be_translated_runs_nothing(typed: list[tuple[str, ...]]) -> None:
    with pytest.raises(UsageError):
        programs.run("scancel", arguments=["-u", "ada"])
    assert typed == []
