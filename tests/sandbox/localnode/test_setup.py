"""What a local node adds: the agent of this machine's devices; and what a purge of its data removes."""

from pathlib import Path

import pytest

from dovetail_agent.devices import discovery
from dovetail_sandbox.localnode import setup
from dovetail_sandbox.state import Component


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "gflow"


def test_a_purge_moves_the_logs_so_that_the_next_queue_begins_its_own(data: Path) -> None:
    for number in (1, 2):
        (data / "logs").mkdir(parents=True)
        (data / "logs" / "1.log").write_text(f"queue {number}\n")
        assert setup.purge("default") == data / f"logs-{number}"
    assert sorted(path.name for path in data.iterdir()) == ["logs-1", "logs-2"]
    assert (data / "logs-2" / "1.log").read_text() == "queue 2\n"


def test_a_purge_without_logs_moves_nothing(data: Path) -> None:
    assert setup.purge("default") == data / "logs"
    assert not data.exists()
    (data / "logs").mkdir(parents=True)
    assert setup.purge("default") == data / "logs"


@pytest.mark.parametrize("library", [True, False])
def test_an_agent_that_loads_a_library_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, *, library: bool
) -> None:
    monkeypatch.setattr(discovery, "has_library", lambda: library)
    agent = Component(
        name="agent", argv=["dovetail-agent", "--provider=simulated", "--config=x"], log="l", ready_url="u"
    )
    found = setup.with_real_devices(agent)
    assert found.argv == ["dovetail-agent", "--config=x", "--provider=auto", "--node=local"]
    assert (found.apart, found.log, found.ready_url) == (library, "l", "u")
    other = Component(name="operator", argv=["dovetail-operator"], log="")
    assert setup.with_real_devices(other) is other
