"""A cache of values by shape, bounded in memory; the least recently used go first."""

from typing import Final, Generic, TypeVar

from dovetail.fragmentation.pod_shapes import Shape

MOST_BYTES: Final = 512 << 20

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Values by shape. The least recently used are dropped when the total exceeds `most_bytes`."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._values: dict[Shape, tuple[Value, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, shape: Shape) -> Value | None:
        """The value of a shape, or None; marks it as the most recently used."""
        found = self._values.pop(shape, None)
        if found is None:
            return None
        self._values[shape] = found
        return found[0]

    def store(self, shape: Shape, *, value: Value, size_bytes: int) -> None:
        """Add a value for a shape that has none. The newest stays, whatever its size."""
        self._values[shape] = (value, size_bytes)
        self._bytes += size_bytes
        while self._bytes > self._most_bytes and len(self._values) > 1:
            _, oldest_bytes = self._values.pop(next(iter(self._values)))
            self._bytes -= oldest_bytes
