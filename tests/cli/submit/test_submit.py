"""What gbatch's words name: a script, a program, a command."""

from pathlib import Path

import pytest

from dovetail_cli.submit import submit
from dovetail_cli.ui.errors import UsageError


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_bytes(b"\x7fELF\x02\x01\x01\x00")
    (tmp_path / "train.sh").write_text("#!/bin/sh\ntrue\n")
    return tmp_path


@pytest.mark.parametrize(("word", "is_script"), [("train.sh", True), ("train", False), ("echo", False)])
def test_a_compiled_program_is_a_command_and_no_script(word: str, *, is_script: bool) -> None:
    assert (submit.script_of([word]) is not None) is is_script


def test_a_program_of_this_machine_cannot_run_in_a_cluster_without_the_directory() -> None:
    with pytest.raises(UsageError, match=r"^\./train is a program of this machine: programs belong into the image$"):
        submit.check_program(["./train"])


def test_a_program_by_an_absolute_path_can_be_the_images(work: Path) -> None:
    submit.check_program([str(work / "train")])
