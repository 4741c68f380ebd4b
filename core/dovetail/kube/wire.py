"""Answers as bytes into values: pages of lists, and events of watches. Pure: no I/O.

The objects of changes stay undecoded here, so that one odd object can be told from a broken stream.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec

from dovetail.api.meta import ObjectMeta
from dovetail.kube.errors import Status, Undecodable

T = TypeVar("T")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder for that type, made once."""
    found = _decoders.get(shape)
    if found is None:
        found = _decoders[shape] = msgspec.json.Decoder(shape)
    return found


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a list; `continue_token` asks for the next page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class _Change(msgspec.Struct, frozen=True, tag_field="type"):
    object: msgspec.Raw


class Added(_Change, frozen=True, tag="ADDED"):
    """An object that is there, or has begun to match the selectors."""


class Modified(_Change, frozen=True, tag="MODIFIED"):
    """An object as it is now."""


class Deleted(_Change, frozen=True, tag="DELETED"):
    """An object as it was last; it is gone, or no longer matches the selectors."""


class Partial(msgspec.Struct, frozen=True):
    """Of an object only its metadata."""

    metadata: ObjectMeta


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Marked(msgspec.Struct, frozen=True):
    # Not an ObjectMeta: API servers before 1.34 write nulls into the rest of a bookmark's metadata.
    metadata: _Version


class Bookmark(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    """Nothing happened up to this resourceVersion."""

    object: _Marked


class Failure(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    """The watch ends, and this is why."""

    object: Status


Change = Added | Modified | Deleted
WatchEvent = Change | Bookmark | Failure
METADATA: Final = msgspec.json.Decoder(Partial)
_EVENTS: Final[msgspec.json.Decoder[WatchEvent]] = msgspec.json.Decoder(WatchEvent)


def event(line: bytes) -> WatchEvent:
    """The event of one line. Raises `Undecodable`."""
    try:
        return _EVENTS.decode(line)
    except msgspec.MsgspecError as error:
        raise Undecodable("a watch", problem=str(error)) from error


class LineBuffer:
    """Whole lines out of chunks that end anywhere. A line may be of any length: objects of a megabyte exist."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty lines are left out."""
        if b"\n" not in chunk:
            self._rest += chunk
            return []
        *lines, rest = (bytes(self._rest) + chunk).split(b"\n")
        self._rest = bytearray(rest)
        return [line for line in lines if line.strip()]
