"""Which rows of the ledger changed, and when: readers ask for what changed since their position. Bounded memory."""

from array import array
from collections.abc import Collection
from typing import Final

# Changes that the log remembers. A reader that is further behind reads all rows.
LOG_LENGTH: Final = 32_768
# The position of a reader that has read nothing yet.
NOTHING_READ: Final = -1


class ChangeLog:
    """A log of row numbers. A position is the number of changes at some time."""

    def __init__(self, *, length: int = LOG_LENGTH) -> None:
        self._length = length
        self._touched = array("q")
        self._changed_at: dict[int, int] = {}
        self._forgotten = 0

    @property
    def position(self) -> int:
        """The number of changes so far."""
        return self._forgotten + len(self._touched)

    def touch(self, row: int) -> None:
        """Record a change of a row."""
        self._touched.append(row)
        self._changed_at[row] = self.position
        if len(self._touched) > self._length:
            self._forgotten += len(self._touched)
            del self._touched[:]

    def changed_at(self, row: int) -> int:
        """The position right after the row's last change; 0 for a row without changes."""
        return self._changed_at.get(row, 0)

    def since(self, position: int) -> Collection[int] | None:
        """The rows that changed after `position`; None if the log does not reach back so far."""
        if position < self._forgotten:
            return None
        return set(self._touched[position - self._forgotten :])
