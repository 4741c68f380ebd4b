from pathlib import Path

import pytest

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_sandbox import state
from dovetail_sandbox.errors import InvalidInputError
from dovetail_sandbox.state import Component, Desired, Observed, State


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_the_folder_follows_from_the_name(home: Path) -> None:
    assert state.directory("a") == home / "dovetail" / "sandboxes" / "a"
    assert state.kubeconfig_path("a") == home / "dovetail" / "sandboxes" / "a" / "kubeconfig"


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a-", "a" * 31, "a b"])
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^name: "):
        state.directory(name)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    known = State(name="a", boot_id=identity.boot_id(), ports={"etcd": 21000}, supervisor=ProcessId(7, 8), nodes=3)
    desired = Desired(components=[Component(name="c", argv=["/bin/true"], log="l")])
    observed = Observed(name="c", state="waiting", last_exit="exit code 1")

    state.write(tmp_path, state=known)
    state.write_desired(tmp_path, desired=desired)
    state.write_observed(tmp_path, observed=[observed])

    assert state.read(tmp_path) == known
    assert state.read_desired(tmp_path) == desired
    assert state.read_observed(tmp_path) == {"c": observed}


def test_nothing_or_a_broken_file_is_no_state(tmp_path: Path) -> None:
    assert state.read(tmp_path) is None
    (tmp_path / "state.json").write_text("{")
    assert state.read(tmp_path) is None
    assert state.read_observed(tmp_path) == {}
    assert state.read_desired(tmp_path) == Desired()


def test_only_folders_with_a_state_are_sandboxes() -> None:
    for name in ("b", "a", "empty"):
        state.directory(name).mkdir(parents=True)
    for name in ("b", "a"):
        state.write(state.directory(name), state=State(name=name))

    assert state.names() == ["a", "b"]


def test_the_lock_leaves_no_file() -> None:
    with state.locked():
        assert list(state.root().iterdir()) == []
    assert list(state.root().iterdir()) == []


def test_processes_of_an_earlier_boot_have_ended(tmp_path: Path) -> None:
    running = ProcessId(1, 2)
    state.write(tmp_path, state=State(name="one", starter=running, supervisor=running))
    found = state.read(tmp_path)
    assert found
    assert (found.starter, found.supervisor) == (running, running)
    file = tmp_path / "state.json"
    file.write_text(file.read_text().replace(found.boot_id, "earlier"))
    found = state.read(tmp_path)
    assert found
    assert (found.starter, found.supervisor) == (None, None)
