"""Sandboxes of tests: one for a single module, and those that the files of tests/cluster use together."""

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pytest

from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster

_HERE: Final = Path(__file__).parent
_LOOK_SECONDS: Final = 0.2


def named() -> str | None:
    """The name of a sandbox that is up already, which the tests are to take and leave up."""
    return os.environ.get("DOVETAIL_TEST_SANDBOX")


@contextmanager
def sandbox_with(**options: Any) -> Iterator[Cluster]:
    """The sandbox that is `named`, or one with these options of `bringup.up` that ends with the context."""
    if name := named():
        yield cluster.get(name)
        return
    own = cluster.get(_new_name())
    try:
        yield bring_up(own, **options)
    finally:
        own.down()


def bring_up(own: Cluster, **options: Any) -> Cluster:
    """The sandbox with all its components ready."""
    return bringup.up(own.name, report=progress.reporter(), **options)


def _new_name() -> str:
    return f"test-{os.getpid()}-{uuid.uuid4().hex[:4]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Sandboxes that several processes of a test run use, each with the tests of one file.

    A file takes a sandbox that no other one uses, if there are several, and shares it otherwise. Whoever needs a
    sandbox that is not up brings it up, and whoever has finished the last file ends them all. `end_all` ends what an
    interrupted run leaves.

    - `folder`: a folder of the run, which all its processes have.
    - `files`: the files of the run that use them.
    - `free`: how many there are for files that have theirs for themselves; 0: one for all files at the same time.
    - `up`: brings up a sandbox of this handle.
    - `before_end`: looks at a sandbox before it ends.
    """

    folder: Path
    files: frozenset[str]
    free: int = 0
    up: Callable[[Cluster], object]
    before_end: Callable[[Cluster], object]

    @contextmanager
    def used_by(self, file: str) -> Iterator[Cluster]:
        """A sandbox, for the tests of a file."""
        with self._place() as place:
            with _locked(place / "lock"):
                found = self._running_in(place)
            try:
                yield found
            finally:
                with _locked(self.folder / "lock"):
                    (self.folder / f"{Path(file).stem}.done").touch()
                    if self.files <= finished(self.folder):
                        for each in _places(self.folder):
                            self._end(each)

    def _running_in(self, place: Path) -> Cluster:
        if (found := _running(place)) is not None:
            return found
        found = cluster.get(_new_name())
        # Before it is up: an interrupt meanwhile leaves parts of it.
        (place / "name").write_text(found.name, encoding="utf-8")
        try:
            self.up(found)
        except BaseException:
            _end(place)
            raise
        return found

    def _end(self, place: Path) -> None:
        if found := _running(place):
            self.before_end(found)
            _end(place)

    @contextmanager
    def _place(self) -> Iterator[Path]:
        """A place for a sandbox, which is nobody else's meanwhile if there are several."""
        if not self.free:
            place = self.folder / "all"
            place.mkdir(parents=True, exist_ok=True)
            yield place
            return
        places = [self.folder / str(at) for at in range(self.free)]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = {place: stack.enter_context((place / "used").open("w")) for place in places}
            while True:
                if (free := next((place for place in places if _takes(files[place])), None)) is not None:
                    yield free
                    return
                time.sleep(_LOOK_SECONDS)


def _takes(file: IO[str]) -> bool:
    """Whether the file is now locked by this process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _places(folder: Path) -> Iterator[Path]:
    return (each.parent for each in sorted(folder.glob("*/name")))


def files_with(items: Iterable[pytest.Item]) -> frozenset[str]:
    """The files of these tests that use a sandbox of tests/cluster: not one of their own, and none if skipped."""
    return frozenset(
        item.path.name
        for item in items
        if item.path.parent == _HERE
        and not hasattr(getattr(item, "module", None), "sandbox")
        and not any(mark.args == (True,) for mark in item.iter_markers("skipif"))
    )


def finished(folder: Path) -> frozenset[str]:
    """The files that have finished with the sandboxes of this folder of a run."""
    return frozenset(f"{each.stem}.py" for each in folder.glob("*.done"))


def end_all(folder: Path) -> None:
    """End the sandboxes of a run whose folders are below this one."""
    for each in folder.glob("*/*/name"):
        _end(each.parent)


def _running(place: Path) -> Cluster | None:
    path = place / "name"
    return cluster.get(path.read_text(encoding="utf-8")) if path.exists() else None


def _end(place: Path) -> None:
    if found := _running(place):
        found.down()
        (place / "name").unlink()
