"""How many objects to request per page, so that no page exceeds `PAGE_BYTES`. Pure.

A page has a largest count in the API and no largest size: 500 objects of 1 MiB are 500 MiB of text.
"""

from typing import Final

# Read twice while its parts are joined, and once more by what is decoded of it. One object has 1.5 MiB in etcd, at most
# six times that as JSON where every character is escaped.
PAGE_BYTES: Final = 16 << 20
_SHRINK: Final = 4
_GROW: Final = 2


class PageSize:
    """The count for the next page.

    A page that was too large divides it by four. Each page that arrives at most doubles it.

    It grows only as far as objects like those of the last page fill half a page.
    """

    def __init__(self, most: int) -> None:
        self.count = most
        self._most = most

    def shrink(self) -> bool:
        """A page of this count was too large.

        False where it had one object alone: no count is small enough.
        """
        if self.count == 1:
            return False
        self.count = max(1, self.count // _SHRINK)
        return True

    def arrived(self, *, objects: int, size_bytes: int) -> None:
        """A page with so many objects came."""
        fit = PAGE_BYTES // 2 * max(1, objects) // max(1, size_bytes)
        self.count = max(1, min(self._most, self.count * _GROW, fit))
