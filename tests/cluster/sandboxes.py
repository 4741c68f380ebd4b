"""Sandboxes of tests: one for a single module, and those that the files of tests/cluster use together."""

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster


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
    """A sandbox that several processes of a test run use at the same time, each with the tests of one file.

    The first that needs it brings it up, and whoever has finished the last file ends it. `end_all` ends what an
    interrupted run leaves.

    - `folder`: a folder of the run, which all its processes have.
    - `files`: the files of the run that use it.
    - `up`: brings up a sandbox of this handle.
    - `before_end`: looks at the sandbox before it ends.
    """

    folder: Path
    files: frozenset[str]
    up: Callable[[Cluster], object]
    before_end: Callable[[Cluster], object]

    @contextmanager
    def used_by(self, file: str) -> Iterator[Cluster]:
        """The sandbox, for the tests of a file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            found = _running(self.folder)
            if found is None:
                found = cluster.get(_new_name())
                # Before it is up: an interrupt meanwhile leaves parts of it.
                (self.folder / "name").write_text(found.name, encoding="utf-8")
                try:
                    self.up(found)
                except BaseException:
                    _end(self.folder)
                    raise
        try:
            yield found
        finally:
            with self._locked():
                (self.folder / f"{Path(file).stem}.done").touch()
                if {f"{Path(each).stem}.done" for each in self.files} <= {each.name for each in self.folder.iterdir()}:
                    self.before_end(found)
                    _end(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def end_all(folder: Path) -> None:
    """End the shared sandboxes whose folders are here."""
    for each in folder.glob("*/name"):
        _end(each.parent)


def _running(folder: Path) -> Cluster | None:
    path = folder / "name"
    return cluster.get(path.read_text(encoding="utf-8")) if path.exists() else None


def _end(folder: Path) -> None:
    if found := _running(folder):
        found.down()
        (folder / "name").unlink()
