"""The first ten minutes on one's own machine, with a home that has nothing: as docs/first-minutes.md tells them.

In the end, nothing that Dovetail made is left there.
"""

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_gateway.console import build
from tests import first_minutes
from tests.first_minutes import Shell
from tests.local_node.machine import empty_machine
from tests.local_node.one_queue.test_words import foreign

pytestmark = pytest.mark.cluster

TOLD = first_minutes.transcripts(first_minutes.PAGE.read_text(encoding="utf-8"))
HERE = ("A laptop without a GPU", "Slurm's words", "The end")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A person's shell: their home has the programs of the control plane and the console's files, and nothing else."""
    home = tmp_path / "ada"
    home.mkdir()
    build.build()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail"
    for folder in ("bin", "console"):
        kept = home / ".cache" / "dovetail" / folder
        kept.mkdir(parents=True)
        for each in (cache / folder).iterdir():
            # Links, so that removing them leaves what this machine has.
            (kept / each.name).symlink_to(each)
    path = f"{home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    homes = {"XDG_CACHE_HOME": str(home / ".cache"), "XDG_CONFIG_HOME": str(home / ".config")}
    with empty_machine(home, HOME=str(home), PATH=path, **homes) as machine:
        words = {
            str(machine.work): "~/work",
            f"{home}/state": "~/.local/state",
            f"{home}/data": "~/.local/share",
            str(home): "~",
            getpass.getuser(): "ada",
        }
        yield Shell(work=machine.work, environment=machine.environment, words=words)


def test_the_first_minutes_on_one_s_own_machine(shell: Shell) -> None:
    if has_gpu():
        pytest.skip("this machine has a GPU")
    before = files(shell.work.parent)
    for section in HERE:
        wrong = first_minutes.replay(TOLD[section], shell=shell)
        assert not wrong, "\n".join(wrong)
    # What a person has written, and what the job of the second section has.
    own = {f"work/{name}" for section in HERE for name in TOLD[section].files} | {f"work/train-{shell.jobs['10']}.log"}
    assert files(shell.work.parent) - before == own


def test_what_is_told_of_one_s_own_machine_has_no_word_of_a_cluster() -> None:
    steps = [step for section in HERE for step in TOLD[section].steps if "uninstall" not in step.command]
    printed = "\n".join(line for step in steps for line in step.printed)
    assert foreign(printed) == []


@pytest.mark.parametrize(
    ("told", "printed", "same"),
    [
        (["a", "…", "b"], ["a", "x", "y", "b"], True),
        (["a", "…", "b"], ["a", "b"], True),
        (["a", "b"], ["a"], False),
        (["a"], ["a", "b"], False),
        (["Job 7 failed: exit code 3."], ["Job 7 failed."], False),
        (["1  eager-fox-1234  R  00:00:02"], ["12     calm-sea-0001   R   01:02:03"], True),
        (["1  eager-fox-1234  R  00:00:02"], ["12     calm-sea-0001   PD  01:02:03"], False),
        # A busy machine gives no answer in time, but no other one either.
        (["It starts now.", "Submitted batch job 2"], ["Submitted batch job 2"], True),
        (["It starts now.", "Submitted batch job 2"], ["It waits.", "Submitted batch job 2"], False),
    ],
)
def test_lines_are_compared_but_for_what_varies(told: list[str], printed: list[str], same: bool) -> None:
    assert first_minutes.agrees(told, printed) == same


def has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def files(home: Path) -> set[str]:
    """The files and links in a home."""
    return {str(path.relative_to(home)) for path in home.rglob("*") if (path.is_file() or path.is_symlink())}
