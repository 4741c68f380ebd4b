"""The files of runs: one folder for each pod that was started on this machine.

    <folder>/<pod UID>/run.json   what runs, and since which boot; written before anything starts
                       execute    words, directory and environment of the process; for its user alone
                       started    the shim's line of /proc/<pid>/stat; the first shim of a run creates it
                       problem    why the process could not be executed
                       ended      its exit code

A run that has `started` is never started again, whichever program asks. A run that was not started in this boot and has
no `ended` was ended by the boot.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from dovetail.decoding import UnreadableError, decode
from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_local_node.launch import Launch

_PRIVATE: Final = 0o600
_START_FIELD: Final = 19


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a pod. Its output begins at `offset` bytes of the file `output`."""

    uid: str
    namespace: str
    name: str
    boot_id: str
    output: str
    error: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended, and when. `problem` says why it could not be executed; empty if it was."""

    exit_code: int
    at: datetime
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The folder of all runs."""

    folder: Path

    def of(self, uid: str) -> Path:
        """The folder of one run, whether it exists or not."""
        return self.folder / uid

    def read(self, uid: str) -> Run | None:
        """Return what was written of a run; None if there is none."""
        try:
            return decode((self.of(uid) / "run.json").read_bytes(), as_type=Run)
        except (OSError, UnreadableError):
            return None

    def all(self) -> list[Run]:
        """Return every run."""
        found = [self.read(path.name) for path in self.folder.iterdir()] if self.folder.exists() else []
        return [run for run in found if run is not None]

    def write(self, run: Run, *, launch: Launch) -> None:
        """Write a run that is about to start. Raises `OSError`."""
        folder = self.of(run.uid)
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        _write(folder / "execute", data=_execute(launch))
        _write(folder / "run.json", data=msgspec.json.encode(run))

    def process(self, uid: str) -> ProcessId | None:
        """Return the shim's process as it identified itself; None before it has started."""
        with suppress(OSError, ValueError, IndexError):
            stat = (self.of(uid) / "started").read_text(encoding="utf-8", errors="replace")
            return ProcessId(int(stat.split(" ", 1)[0]), int(identity.stat_fields(stat)[_START_FIELD]))
        return None

    def started_at(self, uid: str) -> datetime | None:
        """Return when the run started; None before that."""
        return _time(self.of(uid) / "started")

    def ended(self, uid: str) -> Ended | None:
        """Return how the run ended; None while it runs, and if its shim was killed."""
        path = self.of(uid) / "ended"
        at = _time(path)
        with suppress(OSError, ValueError):
            code = int(path.read_text(encoding="ascii"))
            return Ended(exit_code=code, at=at or datetime.now(UTC), problem=self._problem(uid))
        return None

    def _problem(self, uid: str) -> str:
        with suppress(OSError):
            return (self.of(uid) / "problem").read_text(encoding="utf-8", errors="replace")
        return ""

    def remove(self, uid: str) -> None:
        """Remove the run's folder. Its output stays."""
        shutil.rmtree(self.of(uid), ignore_errors=True)


def _execute(launch: Launch) -> bytes:
    count = str(len(launch.words)).encode()
    entries = (name + b"=" + value for name, value in launch.environment.items())
    return b"\0".join((launch.directory, count, *launch.words, *entries))


def _write(path: Path, *, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)


def _time(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
