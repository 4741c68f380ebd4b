"""What git says of a checkout, on real repositories."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.changes import changed_files, merge_base


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    def call(*words: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    call("init", "-q", "-b", "main")
    (tmp_path / "kept.py").write_text("1\n")
    (tmp_path / "old name.py").write_text("2\n")
    call("add", "--all")
    call("commit", "-q", "-m", "first")
    return call


def test_a_branch_has_a_base_and_main_has_none(tmp_path: Path, git: Callable[..., str]) -> None:
    first = git("rev-parse", "HEAD")
    assert merge_base(tmp_path) is None
    git("switch", "-q", "-c", "branch")
    git("commit", "-q", "--allow-empty", "-m", "second")
    assert merge_base(tmp_path) == first


def test_without_a_repository_there_is_no_base(tmp_path: Path) -> None:
    assert merge_base(tmp_path) is None


def test_changed_are_both_names_of_a_move_and_what_is_not_committed_or_not_yet_known(
    tmp_path: Path, git: Callable[..., str]
) -> None:
    base = git("rev-parse", "HEAD")
    git("mv", "old name.py", "new name.py")
    git("commit", "-q", "-m", "moved")
    (tmp_path / "kept.py").write_text("other\n")
    (tmp_path / "fresh.py").write_text("3\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "ignored.py").write_text("4\n")
    assert changed_files(tmp_path, base=base) == {"kept.py", "old name.py", "new name.py", "fresh.py", ".gitignore"}
