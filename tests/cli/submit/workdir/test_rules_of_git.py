"""What goes along is what git itself would add, in trees and with rules that are drawn, for each of their folders."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dovetail_cli.submit.workdir import listing

NAMES: Final = ("a", "b", "c.log", "d.log")
LINES: Final = (
    "*.log", "!*.log", "a", "!a", "!a/", "/a", "!/a", "!/a/", "b/", "!b/", "a/b", "!a/b", "!a/b/", "**/b", "!**/d.log",
    "a/**", "!a/**", "[ab]", "![ab]", "!c.*", "# a", "", r"\!a", "b/*", "!b/*", "!b/c.log", "*", "!*/", "*/", "**",
    "a/**/", "!a/**/b", "b/**/a", "*/b", "?", "!?",
)  # fmt: skip


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "core.excludesFile=/dev/null", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def grow(folder: Path, *, rng: random.Random, depth: int = 0) -> Iterator[Path]:
    """Folders with files and rules, each with those below it."""
    folder.mkdir(exist_ok=True)
    yield folder
    for name in NAMES:
        if depth < 3 and rng.random() < 0.4:
            yield from grow(folder / name, rng=rng, depth=depth + 1)
        else:
            (folder / name).write_text("x")
    if rng.random() < 0.6:
        lines = rng.choices(LINES, k=rng.randrange(1, 4))
        (folder / ".gitignore").write_text("\n".join([*lines, "!.gitignore"]))


@pytest.mark.parametrize("seed", range(40))
def test_the_same_files_go_along_as_git_would_add(tmp_path: Path, seed: int) -> None:
    work = tmp_path / "work"
    folders = list(grow(work, rng=random.Random(seed)))
    git(work, "init", "-q")
    added = [work / each for each in git(work, "ls-files", "-z", "--others", "--exclude-standard").split("\0") if each]
    ignored = git(work, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory").split("\0")
    left_out = {work / each for each in ignored if each.endswith("/")}
    for root in folders:
        if left_out.isdisjoint({root, *root.parents}):
            # git itself never adds its own folder, whatever a line takes in.
            found = {root / entry.path for entry in listing.of(root).files if not entry.path.startswith(".git/")}
            assert found == {each for each in added if each.is_relative_to(root)}, root
