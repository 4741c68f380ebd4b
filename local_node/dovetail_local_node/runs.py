"""The files of runs: one folder for each pod that was started on this machine.

    <folder>/<pod UID>/run.json   what runs, and since which boot; written before anything starts
                       execute    cgroups, words, directory and environment of the process; for its user alone
                       started    the shim's line of /proc/<pid>/stat; the first shim of a run creates it
                       volumes/   its emptyDirs, and the files of ConfigMaps and Secrets; gone with the pod
                       problem    why the process could not be executed
                       out-of-memory  the kernel has ended a process of it for that reason
                       terminated the shim has received SIGTERM, as its process has
                       stopped    its user stops the queue; the run ends for that reason
                       ended      its exit code

A run that has `started` is never started again, whichever program asks. A run that was not started in this boot and has
no `ended` was ended by the boot.
"""

import os
import shutil
from collections.abc import Sequence
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
    """One start of a pod. Its output begins at `offset` bytes of the file `output`; `groups` are its cgroups."""

    uid: str
    namespace: str
    name: str
    boot_id: str
    output: str
    error: str = ""
    offset: int = 0
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended, and when. `reason` and `message` say why, as a pod's status has them; empty if it just ended."""

    exit_code: int
    at: datetime
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The folder of all runs."""

    folder: Path

    @classmethod
    def below(cls, state: Path) -> "Runs":
        """The runs of the local node whose folder is `state`."""
        return cls(folder=state / "runs")

    def of(self, uid: str) -> Path:
        """The folder of one run, whether it exists or not."""
        return self.folder / uid

    def volumes(self, uid: str) -> Path:
        """The folder of its volumes, which it has while its pod exists."""
        return self.of(uid) / "volumes"

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
        _write(folder / "execute", data=_execute(launch, groups=run.groups))
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
            problem = self._problem(uid)
            reason = "StartError" if problem else ""
            return Ended(exit_code=code, at=at or datetime.now(UTC), reason=reason, message=problem)
        return None

    def mark_out_of_memory(self, uid: str) -> None:
        """Note that the kernel has ended a process of the run at its limit of memory. Raises `OSError`."""
        (self.of(uid) / "out-of-memory").touch(mode=_PRIVATE)

    def was_out_of_memory(self, uid: str) -> bool:
        """Whether the kernel has ended a process of the run at its limit of memory."""
        return (self.of(uid) / "out-of-memory").exists()

    def was_terminated(self, uid: str) -> bool:
        """Whether the run's processes received SIGTERM."""
        return (self.of(uid) / "terminated").exists()

    def mark_stopped(self, uid: str) -> None:
        """Note that its user stops the queue while the run's process runs. Raises `OSError`."""
        (self.of(uid) / "stopped").touch(mode=_PRIVATE)

    def clear_stopped(self, uid: str) -> None:
        """Remove that note: the stop was interrupted, and the process runs on."""
        (self.of(uid) / "stopped").unlink(missing_ok=True)

    def was_stopped(self, uid: str) -> bool:
        """Whether the run's process ran when its user stopped the queue."""
        return (self.of(uid) / "stopped").exists()

    def _problem(self, uid: str) -> str:
        with suppress(OSError):
            return (self.of(uid) / "problem").read_text(encoding="utf-8", errors="replace")
        return ""

    def remove(self, uid: str) -> None:
        """Remove the run's folder. Its output stays."""
        shutil.rmtree(self.of(uid), ignore_errors=True)


def _execute(launch: Launch, *, groups: Sequence[str]) -> bytes:
    joined = [os.fsencode(group) for group in groups]
    counts = (str(len(each)).encode() for each in (joined, launch.words))
    entries = (name + b"=" + value for name, value in launch.environment.items())
    return b"\0".join((launch.directory, *counts, *joined, *launch.words, *entries))


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
