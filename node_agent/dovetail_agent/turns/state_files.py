"""Files that the agent and its watchdog share on the node: frozen pods and heartbeats.

`frozen/<pod UID>` holds the path of the pod's cgroup below the freezer's root. The file exists before the pod is frozen
and until the pod is thawed, so that every frozen pod is marked at every moment. As long as the cgroup exists, only the
agent removes the file. `agent` and `watchdog` hold the time of the last heartbeat, on the kernel's monotonic clock,
which is the same in all containers.

This module uses only the standard library: the watchdog reads the files too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Both send a heartbeat every second: after this silence the process has ended or hangs.
SILENT_SECONDS: Final = 5.0
_FROZEN: Final = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A pod that the agent has frozen or is about to freeze.

    `written` (ns) distinguishes two freezes of one pod.
    """

    uid: str
    group: Path
    written: int


class Marks:
    """The folder of marks and heartbeats. `clock` is the kernel's monotonic clock, in seconds."""

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock

    def prepare(self) -> None:
        """Create the folder; the agent and the watchdog both do so. Raises `OSError`."""
        (self._folder / _FROZEN).mkdir(parents=True, exist_ok=True)

    def mark(self, uid: str, *, group: Path) -> None:
        """Mark a pod as frozen by the agent. Raises `OSError`."""
        self._replace(f"{_FROZEN}/{uid}", text=str(group))

    def drop(self, uid: str) -> None:
        """Remove a pod's mark."""
        (self._folder / _FROZEN / uid).unlink(missing_ok=True)

    def has(self, uid: str) -> bool:
        """Whether a pod is marked."""
        return (self._folder / _FROZEN / uid).exists()

    def all(self) -> list[Mark]:
        """Return every mark. A mark that disappears meanwhile is left out."""
        marks = []
        for file in sorted((self._folder / _FROZEN).glob("[!.]*")):
            try:
                marks.append(Mark(uid=file.name, group=Path(file.read_text()), written=file.stat().st_mtime_ns))
            except FileNotFoundError:
                continue
        return marks

    def beat(self, who: str) -> None:
        """Write a heartbeat of `who`. Raises `OSError`."""
        self._replace(who, text=repr(self._clock()))

    def leave(self, who: str) -> None:
        """Remove the heartbeat of `who`, which is ending."""
        (self._folder / who).unlink(missing_ok=True)

    def alive(self, who: str) -> bool:
        """Whether `who` has a recent heartbeat.

        A heartbeat in the future of the clock is from before a reboot.
        """
        try:
            age = self._clock() - float((self._folder / who).read_text())
        except (OSError, ValueError):
            return False
        return 0 <= age < SILENT_SECONDS

    def _replace(self, name: str, *, text: str) -> None:
        # Atomically: a reader never sees half a file.
        file = self._folder / name
        new = file.with_name(f".{file.name}.new")
        new.write_text(text)
        new.replace(file)
