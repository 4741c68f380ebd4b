"""What the agent and its watchdog tell each other, as files of a folder on the node: who was frozen, and who lives.

`frozen/<pod UID>` holds the path of the pod's cgroup below the freezer's root. It is there before the pod is frozen and
until it was thawed, so that whatever we have frozen is marked at every moment; while there is such a cgroup the agent
alone removes it. `agent` and `watchdog` hold the kernel's monotonic clock, the same in all containers, as it was when
each was last seen to work.

Nothing but the standard library: the watchdog reads it too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Both beat every second; who was silent for this long is dead, or hangs.
SILENT_SECONDS: Final = 5.0
_FROZEN: Final = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A pod that we have frozen, or are about to. `written` differs between two freezes of one pod."""

    uid: str
    group: Path
    written: int


class Marks:
    """The folder. `clock` is the kernel's monotonic one."""

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock

    def prepare(self) -> None:
        """Make the folder, for whoever comes first. Raises `OSError`."""
        (self._folder / _FROZEN).mkdir(parents=True, exist_ok=True)

    def put(self, uid: str, *, group: Path) -> None:
        """Mark a pod as frozen by us. Raises `OSError`."""
        self._replace(f"{_FROZEN}/{uid}", text=str(group))

    def drop(self, uid: str) -> None:
        """Mark it no more."""
        (self._folder / _FROZEN / uid).unlink(missing_ok=True)

    def has(self, uid: str) -> bool:
        """Whether it is marked."""
        return (self._folder / _FROZEN / uid).exists()

    def all(self) -> list[Mark]:
        """Every mark. One that vanishes meanwhile is left out."""
        marks = []
        for file in sorted((self._folder / _FROZEN).glob("[!.]*")):
            try:
                marks.append(Mark(uid=file.name, group=Path(file.read_text()), written=file.stat().st_mtime_ns))
            except FileNotFoundError:
                continue
        return marks

    def beat(self, who: str) -> None:
        """Say that `who` works. Raises `OSError`."""
        self._replace(who, text=repr(self._clock()))

    def leave(self, who: str) -> None:
        """Say that `who` is going."""
        (self._folder / who).unlink(missing_ok=True)

    def alive(self, who: str) -> bool:
        """Whether `who` has beaten of late. A clock that stands before the beat is another boot's."""
        try:
            age = self._clock() - float((self._folder / who).read_text())
        except (OSError, ValueError):
            return False
        return 0 <= age < SILENT_SECONDS

    def _replace(self, name: str, *, text: str) -> None:
        # In one step: a reader never sees half of it.
        file = self._folder / name
        new = file.with_name(f".{file.name}.new")
        new.write_text(text)
        new.replace(file)
