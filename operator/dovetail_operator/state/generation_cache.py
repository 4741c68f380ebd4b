"""A cache whose entries live from one cycle of the queue to the next, and no longer."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The cache, by the job's UID. In a cycle, `get` reads the previous cycle's entries.

    `keep` stores an entry for the next cycle. An entry that a cycle does not keep is dropped at its end.
    """

    def __init__(self) -> None:
        self._known: dict[str, T] = {}
        self._kept: dict[str, T] = {}

    def get(self, uid: str) -> T | None:
        """The entry that the previous cycle kept for the job, or None."""
        return self._known.get(uid)

    def keep(self, uid: str, *, value: T) -> None:
        """Store an entry for the next cycle."""
        self._kept[uid] = value

    def clear(self) -> None:
        """Drop all entries: what they were computed from has changed."""
        self._known, self._kept = {}, {}

    def forget_others(self) -> None:
        """End the cycle: drop every entry that it did not keep."""
        self._known, self._kept = self._kept, {}
