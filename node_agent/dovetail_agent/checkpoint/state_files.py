"""Records on disk which tenants are moved to the host, so that the next agent restores them.

A checkpointed process is on no device, so no driver lists it: only this file records it. The file is written before the
first call and deleted when the process runs again. `started` distinguishes a process from a later one with the same
PID.
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
    """One tenant: its pod, its process, and its memory in MiB on each device (by UUID)."""

    uid: str
    namespace: str
    name: str
    pid: int
    started: int
    memory_mib: dict[str, int]


class CheckpointMarks:
    """A folder with one file for each marked tenant. All methods raise `OSError`."""

    def __init__(self, folder: Path, *, proc: Path) -> None:
        self._folder = folder
        self._proc = proc

    def prepare(self) -> None:
        """Create the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, mark: Mark) -> None:
        """Write a mark, atomically."""
        new = self._folder / f"{mark.uid}.new"
        new.write_bytes(msgspec.json.encode(mark))
        new.replace(self._folder / f"{mark.uid}{_SUFFIX}")

    def get(self, uid: str) -> Mark | None:
        """Return the mark of a pod, or None if there is none or it is unreadable."""
        with suppress(FileNotFoundError, UnreadableError):
            return decode((self._folder / f"{uid}{_SUFFIX}").read_bytes(), as_type=Mark)
        return None

    def drop(self, uid: str) -> None:
        """Delete the mark of a pod that runs again or is gone."""
        (self._folder / f"{uid}{_SUFFIX}").unlink(missing_ok=True)

    def all(self) -> Iterator[Mark]:
        """Yield every mark in the order of pod UIDs."""
        for file in sorted(self._folder.glob(f"*{_SUFFIX}")):
            if mark := self.get(file.stem):
                yield mark

    def alive(self, mark: Mark) -> bool:
        """Whether the mark's process is still the one that was marked."""
        return started(mark.pid, proc=self._proc) == mark.started
