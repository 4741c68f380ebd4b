"""Whom this agent is moving or has moved to the host, on disk: the next agent brings them back.

A process that is checkpointed is on no card, so no driver names it: only this file says that it was. It is written
before the first call and goes when the process runs again. `started` tells a process from a later one of its number.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from dovetail.decoding import UnreadableError, decode
from dovetail_agent.processes.identity import started

_SUFFIX: Final = ".json"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant: its pod, its process, and the memory in MiB that it had on each card (by UUID)."""

    uid: str
    namespace: str
    name: str
    pid: int
    started: int
    memory_mib: dict[str, int]


class CheckpointMarks:
    """A folder with one file for each. All calls raise `OSError`."""

    def __init__(self, folder: Path, *, proc: Path) -> None:
        self._folder = folder
        self._proc = proc

    def prepare(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def put(self, mark: Mark) -> None:
        """Write it down."""
        new = self._folder / f"{mark.uid}.new"
        new.write_bytes(msgspec.json.encode(mark))
        new.replace(self._folder / f"{mark.uid}{_SUFFIX}")

    def get(self, uid: str) -> Mark | None:
        """The mark of a pod."""
        with suppress(FileNotFoundError, UnreadableError):
            return decode((self._folder / f"{uid}{_SUFFIX}").read_bytes(), as_type=Mark)
        return None

    def drop(self, uid: str) -> None:
        """It runs again, or is gone."""
        (self._folder / f"{uid}{_SUFFIX}").unlink(missing_ok=True)

    def all(self) -> Iterator[Mark]:
        """Every mark, by pod UID."""
        for file in sorted(self._folder.glob(f"*{_SUFFIX}")):
            if mark := self.get(file.stem):
                yield mark

    def alive(self, mark: Mark) -> bool:
        """Whether its process is still the one that was marked."""
        return started(mark.pid, proc=self._proc) == mark.started
