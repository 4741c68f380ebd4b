"""When many come at once."""

from collections import deque
from typing import Final

# So many within a second are more than one caller causes who submits job after job and waits for each number.
MANY: Final = 8
_WITHIN_SECONDS: Final = 1.0


class Burst:
    """Whether the latest `many` came within a second. Times are seconds of one clock."""

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self._latest: deque[float] = deque(maxlen=many)

    def note(self, now: float, *, count: int = 1) -> None:
        """Record that `count` come now."""
        self._latest.extend(now for _ in range(min(count, self._many)))

    def is_one(self, now: float) -> bool:
        """Whether many came within the last second."""
        return len(self._latest) == self._many and all(now - first <= _WITHIN_SECONDS for first in self._latest)
