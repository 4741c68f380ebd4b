"""The files of a run: what a local node that was killed while it wrote them has left is no run, and no end."""

from pathlib import Path

import pytest

from dovetail_local_node.launch import Launch
from dovetail_local_node.runs import Run, Runs

STAT = Path("/proc/self/stat")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs.below(tmp_path)


def written(runs: Runs, uid: str, **changes: str) -> Path:
    """A run, and files of its folder with these texts."""
    launch = Launch(words=(b"true",), directory=b"/", environment={}, output=Path("/dev/null"))
    runs.write(Run(uid=uid, namespace="n", name="p", boot_id="b", output="/dev/null"), launch=launch)
    for name, text in changes.items():
        (runs.of(uid) / name).write_text(text)
    return runs.of(uid)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"uid": "u"}'])
def test_a_record_that_cannot_be_read_is_none_and_hides_no_other(runs: Runs, text: str) -> None:
    written(runs, "a")
    (written(runs, "b") / "run.json").write_text(text)
    (runs.folder / "c").mkdir()
    assert (runs.read("b"), runs.read("c"), runs.read("d")) == (None, None, None)
    assert [run.uid for run in runs.all()] == ["a"]


def test_before_the_first_run_there_are_none(runs: Runs) -> None:
    assert runs.all() == []
    runs.remove("a")


@pytest.mark.parametrize("text", ["", "\n", "none\n"])
def test_an_end_without_a_code_is_no_end(runs: Runs, text: str) -> None:
    """The shim creates the file before it writes the code."""
    written(runs, "a", ended=text)
    assert runs.ended("a") is None


@pytest.mark.parametrize("text", ["", "1\n", "77 (sh) S 1\n"])
def test_a_shim_that_has_not_written_its_whole_line_has_not_started(runs: Runs, text: str) -> None:
    written(runs, "a", started=text)
    assert runs.process("a") is None
    assert runs.process("b") is None


def test_a_program_may_have_any_name(runs: Runs) -> None:
    """The kernel writes it between brackets."""
    fields = STAT.read_text().rpartition(")")[2].split()
    written(runs, "a", started=f"77 (a) b) 3 (c) {' '.join(fields)}\n")
    found = runs.process("a")
    assert found is not None
    assert (found.pid, found.started) == (77, int(fields[19]))


def test_what_could_not_be_executed_is_the_reason_of_the_end(runs: Runs) -> None:
    written(runs, "a", ended="127\n", problem="nothing: No such file or directory")
    end = runs.ended("a")
    assert end is not None
    assert (end.exit_code, end.reason, end.message) == (127, "StartError", "nothing: No such file or directory")


def test_each_mark_is_its_own(runs: Runs) -> None:
    written(runs, "a")
    written(runs, "b")
    runs.mark_stopped("a")
    runs.mark_out_of_memory("b")
    assert [(runs.was_stopped(uid), runs.was_out_of_memory(uid)) for uid in "ab"] == [(True, False), (False, True)]
    assert not any(runs.was_terminated(uid) for uid in "ab")
    for uid in "ab":
        runs.clear_stopped(uid)
    assert (runs.was_stopped("a"), runs.was_out_of_memory("b")) == (False, True)


def test_what_is_to_be_executed_is_complete_before_the_run_is_there(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local node that is killed between the two files must not leave a run that can never start."""
    replace = Path.replace

    def noted(path: Path, target: Path) -> Path:
        assert target.name == "execute" or (target.parent / "execute").read_bytes().endswith(b"true")
        assert path.stat().st_mode & 0o077 == 0
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", noted)
    folder = written(runs, "a")
    assert sorted(path.name for path in folder.iterdir()) == ["execute", "run.json"]
