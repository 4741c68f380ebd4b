"""The sandbox that processes of a test run share: up once, and ended by the last of them or with the run."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event

import pytest

from dovetail_sandbox import cluster
from dovetail_sandbox.cluster import Cluster
from tests.cluster.sandboxes import Shared, end_all

FILES = frozenset({"test_a.py", "test_b.py", "test_c.py"})


class Seen:
    """Sandboxes that are a folder only, and what became of them."""

    def __init__(self) -> None:
        self.up: list[str] = []
        self.ended: list[str] = []

    def bring_up(self, own: Cluster) -> None:
        self.up.append(own.name)
        own.folder.mkdir(parents=True)

    def look(self, found: Cluster) -> None:
        assert found.folder.exists()
        self.ended.append(found.name)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def shared(seen: Seen, *, folder: Path) -> Shared:
    return Shared(folder=folder / "alone", files=FILES, up=seen.bring_up, before_end=seen.look)


def test_many_at_once_bring_it_up_once_and_the_last_one_ends_it(tmp_path: Path) -> None:
    seen, together = Seen(), Barrier(len(FILES))

    def use(file: str) -> str:
        with shared(seen, folder=tmp_path).used_by(f"tests/cluster/{file}") as found:
            together.wait(30)
            assert found.folder.exists()
            return found.name

    with ThreadPoolExecutor(len(FILES)) as pool:
        names = set(pool.map(use, sorted(FILES)))
    assert names == {*seen.up} == {*seen.ended}
    assert len(seen.up) == 1
    assert not cluster.get(seen.up[0]).folder.exists()


def test_between_two_files_it_stays_up_and_a_file_that_fails_counts_as_finished(tmp_path: Path) -> None:
    seen = Seen()
    with shared(seen, folder=tmp_path).used_by("test_a.py") as first:
        pass
    with pytest.raises(ZeroDivisionError), shared(seen, folder=tmp_path).used_by("test_b.py") as second:
        assert 1 / 0
    assert (first, seen.ended) == (second, [])
    with shared(seen, folder=tmp_path).used_by("test_c.py"):
        pass
    assert seen.ended == seen.up == [first.name]


def test_a_file_has_a_free_one_for_itself_and_waits_where_there_is_none(tmp_path: Path) -> None:
    seen, in_use, together = Seen(), set[str](), Barrier(2)

    def use(file: str) -> str:
        with replace(shared(seen, folder=tmp_path), free=2).used_by(file) as found:
            assert found.name not in in_use
            in_use.add(found.name)
            if file != "test_c.py":
                # Both are there before a third one may have either.
                together.wait(30)
                begun.set()
            assert found.folder.exists()
            in_use.remove(found.name)
            return found.name

    begun = Event()
    with ThreadPoolExecutor(len(FILES)) as pool:
        first = [pool.submit(use, file) for file in ("test_a.py", "test_b.py")]
        begun.wait(30)
        last = pool.submit(use, "test_c.py")
        names = {each.result() for each in first}
    assert len(names) == 2
    assert last.result() in names
    assert sorted(seen.up) == sorted(seen.ended) == sorted(names)
    assert not any(cluster.get(name).folder.exists() for name in names)


def test_one_that_does_not_come_up_is_ended_and_the_next_file_tries_again(tmp_path: Path) -> None:
    seen = Seen()

    def fail(own: Cluster) -> None:
        seen.bring_up(own)
        raise RuntimeError(own.name)

    broken = Shared(folder=tmp_path / "alone", files=FILES, up=fail, before_end=seen.look)
    with pytest.raises(RuntimeError), broken.used_by("test_a.py"):
        pass
    assert not cluster.get(seen.up[0]).folder.exists()
    with shared(seen, folder=tmp_path).used_by("test_b.py") as found:
        assert found.name == seen.up[1] != seen.up[0]


def test_the_end_of_a_run_ends_what_an_interrupt_left(tmp_path: Path) -> None:
    seen = Seen()
    with shared(seen, folder=tmp_path).used_by("test_a.py") as found:
        assert found.folder.exists()
    end_all(tmp_path)
    assert not found.folder.exists()
    end_all(tmp_path)
