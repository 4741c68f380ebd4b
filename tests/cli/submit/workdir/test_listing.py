"""What goes along: git's rules, and Dovetail's own on top."""

import os
from pathlib import Path

import pytest

from dovetail_cli.submit.workdir import listing
from dovetail_cli.submit.workdir.root_folder import MAX_DEPTH
from dovetail_cli.ui.errors import CommandError, UsageError


def make(root: Path, *files: str, **texts: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    for name, text in texts.items():
        (root / f".{name}").write_text(text)
    return root


def paths(root: Path) -> list[str]:
    return [entry.path for entry in listing.of(root).files]


def test_files_and_folders_go_along_in_order(tmp_path: Path) -> None:
    make(tmp_path, "train.py", "net/model.py", "net/deep/a b.py")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    found = listing.of(tmp_path)
    assert [(entry.path, entry.folder) for entry in found.entries] == [
        ("empty", True), ("net", True), ("run.sh", False), ("train.py", False),
        ("net/deep", True), ("net/model.py", False), ("net/deep/a b.py", False),
    ]  # fmt: skip
    assert [entry.path for entry in found.files if entry.executable] == ["run.sh"]
    assert found.size == len("#!/bin/sh\n") + 3


def test_what_git_ignores_stays(tmp_path: Path) -> None:
    make(tmp_path, "train.py", "a.log", "keep.log", "data/x", "src/data/y", gitignore="*.log\n!keep.log\n/data/\n")
    assert paths(tmp_path) == [".gitignore", "keep.log", "train.py", "src/data/y"]


def test_the_rules_of_a_folder_count_below_it(tmp_path: Path) -> None:
    make(tmp_path, "a.bin", "net/a.bin", "net/b.bin", "net/deep/a.bin")
    (tmp_path / "net" / ".gitignore").write_text("a.bin\n!/deep/\n")
    (tmp_path / "net" / "deep" / ".gitignore").write_text("!a.bin\n")
    assert paths(tmp_path) == ["a.bin", "net/.gitignore", "net/b.bin", "net/deep/.gitignore", "net/deep/a.bin"]


def test_dovetails_own_file_takes_precedence(tmp_path: Path) -> None:
    make(tmp_path, "w.pt", "notes.md", gitignore="*.pt\n", dovetailignore="!w.pt\n*.md\n.*ignore\n")
    assert paths(tmp_path) == ["w.pt"]


def test_what_no_job_needs_stays_unless_a_line_takes_it_in(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", ".venv/bin/python", "net/__pycache__/a.pyc", "net/a.py", "job-17/weights.pt")
    assert paths(tmp_path) == ["net/a.py"]
    make(tmp_path, dovetailignore="!.venv/\n")
    assert paths(tmp_path) == [".dovetailignore", ".venv/bin/python", "net/a.py"]


def test_the_rules_of_the_repository_above_count(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "src/train.py", "src/out/x", "src/a.log", gitignore="src/out/\n*.log\n")
    assert paths(tmp_path / "src") == ["train.py"]


def test_a_directory_that_git_ignores_as_a_whole_goes_along(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "scratch/train.py", gitignore="scratch/\n")
    assert paths(tmp_path / "scratch") == ["train.py"]


def test_links_to_files_of_the_directory_go_along_as_files_and_others_stay(tmp_path: Path) -> None:
    work = make(tmp_path / "work", "train.py", "net/shared.py", "a -> b", "a link to b", "two\nlines")
    (work / "shared.py").symlink_to("net/shared.py")
    (work / "again.py").symlink_to(work / "folder" / "shared.py")
    (work / "folder").symlink_to("net")
    (work / "broken").symlink_to("nowhere")
    os.mkfifo(work / "pipe")
    found = listing.of(work)
    assert {entry.path: entry.target for entry in found.files} == {
        "again.py": "net/shared.py", "net/shared.py": "", "shared.py": "net/shared.py", "train.py": "",
    }  # fmt: skip
    assert found.left_out == ("a -> b", "a link to b", "broken", "folder", "pipe", "two\nlines")


@pytest.mark.parametrize(
    "target",
    ["{home}/.ssh/id_ed25519", "../home/.ssh/id_ed25519", "chain", "out/.ssh/id_ed25519", "/proc/self/environ"],
)
def test_a_link_that_leaves_the_directory_is_refused_by_name(tmp_path: Path, target: str) -> None:
    make(tmp_path / "home", ".ssh/id_ed25519")
    work = make(tmp_path / "work", "train.py")
    (work / "chain").symlink_to("out/.ssh/id_ed25519")
    (work / "out").symlink_to(tmp_path / "home")
    (work / "data.txt").symlink_to(target.format(home=tmp_path / "home"))
    make(work, dovetailignore="/chain\n")
    with pytest.raises(CommandError, match=r"do not go along: data\.txt to /.*\. Copy such a file .*\.dovetailignore$"):
        listing.of(work)
    make(work, dovetailignore="/chain\ndata.txt\n")
    assert paths(work) == [".dovetailignore", "train.py"]


def test_a_link_to_a_file_that_stays_is_refused(tmp_path: Path) -> None:
    work = make(tmp_path, "train.py", ".env", gitignore=".env\n")
    (work / "notes.txt").symlink_to(".env")
    with pytest.raises(CommandError, match=rf"do not go along: notes\.txt to {tmp_path}/\.env"):
        listing.of(work)


def test_a_directory_that_is_too_deep_is_named(tmp_path: Path) -> None:
    (tmp_path / ("d/" * MAX_DEPTH)).mkdir(parents=True)
    assert len(listing.of(tmp_path).entries) == MAX_DEPTH
    (tmp_path / ("d/" * (MAX_DEPTH + 1))).mkdir()
    with pytest.raises(CommandError, match="cannot go along: it is more than 64 folders deep"):
        listing.of(tmp_path)


def test_a_line_that_is_no_pattern_names_its_file(tmp_path: Path) -> None:
    make(tmp_path, gitignore="!\n")
    with pytest.raises(UsageError, match=rf"{tmp_path}/\.gitignore: a line is no pattern"):
        listing.of(tmp_path)


def test_too_many_files_name_the_folder_with_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_ENTRIES", 4)
    make(tmp_path, "a", "data/1", "data/2", "data/3")
    with pytest.raises(CommandError, match=r"has more than 4 files, 4 of them in data: .* \.dovetailignore"):
        listing.of(tmp_path)


def test_a_folder_that_vanishes_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="none: No such file or directory, so the directory cannot go along"):
        listing.of(tmp_path / "none")
