"""Rows as JSON, encoded once for each object: an object never changes, so a new one is another version of it."""

from collections.abc import Callable, Container
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class EncodedRows(Generic[V]):
    """The rows of objects of one kind, by key; `row` makes the row of an object. Mutable."""

    def __init__(self, row: Callable[[V], msgspec.Struct]) -> None:
        self._row = row
        # With the object, so that another one of the same key is another version.
        self._kept: dict[str, tuple[V, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: str, *, value: V) -> bytes:
        """The row of this object."""
        kept = self._kept.get(key)
        if kept is None or kept[0] is not value:
            kept = self._kept[key] = value, msgspec.json.encode(self._row(value))
        return kept[1]

    def forget(self, key: str) -> None:
        """Forget the row of this key."""
        self._kept.pop(key, None)

    def keep_only(self, keys: Container[str]) -> None:
        """Forget the rows of all other keys."""
        for gone in [key for key in self._kept if key not in keys]:
            del self._kept[gone]
