"""Slurm's names as links: installed on request, in front of no other program, and removed."""

import sys
from pathlib import Path

import pytest

from dovetail_cli import app
from dovetail_cli.slurm import names, programs
from dovetail_cli.ui.errors import UsageError


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program `dovetail`, which runs now."""
    found = tmp_path / "app" / "dovetail"
    found.parent.mkdir()
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(found)])
    return found


def test_the_names_are_installed_next_to_the_program_or_where_one_says(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert names.install(None)[0] == f"{program.parent}/sbatch is gbatch with Slurm's options."
    assert (program.parent / "squeue").resolve() == program
    other = tmp_path / "bin"
    said = names.install(str(other))
    assert f"But {program.parent}/sbatch comes first in your PATH." in said
    assert said[-1] == f"{other} is not in your PATH."
    assert names.install(str(other)) == said
    assert sorted(each.name for each in other.iterdir()) == sorted(app.SLURM_NAMES)


def test_no_other_program_is_replaced_or_removed(program: Path, tmp_path: Path) -> None:
    (tmp_path / "sinfo").write_text("Slurm's own")
    with pytest.raises(UsageError, match=f"{tmp_path}/sinfo is another program; name another folder"):
        names.install(str(tmp_path))
    assert not (tmp_path / "sbatch").exists()
    (tmp_path / "sbatch").symlink_to(program)
    assert names.remove(str(tmp_path)) == [f"{tmp_path}/sbatch is removed."]
    assert names.remove(str(tmp_path)) == [f"{tmp_path} has none of these names."]
    assert (tmp_path / "sinfo").read_text() == "Slurm's own"


def test_the_names_of_another_installation_stay(program: Path, tmp_path: Path) -> None:
    (tmp_path / "sbatch").symlink_to("/elsewhere/dovetail")
    with pytest.raises(UsageError, match="is of another installation of Dovetail: remove it first"):
        names.install(str(tmp_path))
    assert program.exists()


def test_the_programs_are_those_that_the_application_knows() -> None:
    assert tuple(programs.PROGRAMS) == app.SLURM_NAMES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sbatch", "--parsable", "train.sh"], "42\n"),
        (["sbatch", "train.sh"], "Submitted batch job 42\n"),
        (["squeue", "-h"], "row 1\nrow 2\n"),
        (["squeue"], "HEADER\nrow 1\nrow 2\n"),
    ],
)
def test_the_answer_is_as_scripts_expect_it(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"gbatch": "Submitted batch job 42", "gqueue": "HEADER\nrow 1\nrow 2"}

    def run(name: str, **_: object) -> int:
        print(answers[name])
        return 0

    monkeypatch.setattr(app, "run", run)
    name, *rest = words
    assert app.slurm(name, arguments=rest) == 0
    assert capsys.readouterr().out == said


def test_a_name_decides_what_the_program_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/bin/scancel"])
    with pytest.raises(SystemExit) as ended:
        app.dovetail()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "dovetail: scancel: name the jobs, such as scancel 7 or scancel -n train\n"
    assert app.slurm("sbatch", arguments=["--help"]) == 0
    assert capsys.readouterr().out.startswith("sbatch: gbatch with Slurm's options")


def test_a_link_to_another_program_stays_when_ours_are_removed(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "bin"
    names.install(str(other))
    (other / "sinfo").unlink()
    (other / "sinfo").symlink_to("/opt/slurm/bin/sinfo")
    assert f"{other}/sinfo is removed." not in names.remove(str(other))
    assert [each.name for each in other.iterdir()] == ["sinfo"]
