"""What a purge of the local node's data removes, and where the logs are then."""

from pathlib import Path

import pytest

from dovetail_sandbox.localnode import setup


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
