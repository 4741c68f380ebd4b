"""What is kept of jobs from look to look of the queue: as long as each look asks for it, and no longer."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """By the job's UID. Within a look `get` what the look before kept and `keep` what the next one may find."""

    def __init__(self) -> None:
        self._known: dict[str, T] = {}
        self._kept: dict[str, T] = {}

    def get(self, uid: str) -> T | None:
        """What the look before kept of that job."""
        return self._known.get(uid)

    def keep(self, uid: str, value: T) -> None:
        """Keep it for the next look."""
        self._kept[uid] = value

    def forget_others(self) -> None:
        """The look is over: what it did not keep is dropped, with all that it was made of."""
        self._known, self._kept = self._kept, {}
