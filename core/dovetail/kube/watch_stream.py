"""Decodes pages of lists and events of watches. Pure: no I/O.

The objects of pages and events stay raw here, so that one unreadable object does not make the whole answer unreadable.
Where msgspec fails because an object is nested deeper than its stack, `json_scanner` finds the objects and their
metadata.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from dovetail.api.meta import ObjectMeta
from dovetail.decoding import Decoder, UnreadableError
from dovetail.kube.errors import Status, TooLarge, Undecodable
from dovetail.kube.page_size import PAGE_BYTES
from dovetail.kube.unreadable_objects import OnUnreadable

T = TypeVar("T")
_decoders: dict[Any, Decoder[Any]] = {}


def decoder(shape: type[T]) -> Decoder[T]:
    """The decoder for that type, made once per process."""
    found = _decoders.get(shape)
    if found is None:
        found = _decoders[shape] = Decoder(shape)
    return found


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a list. `continue_token` requests the next page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class _Change(msgspec.Struct, frozen=True, tag_field="type"):
    object: msgspec.Raw


class Added(_Change, frozen=True, tag="ADDED"):
    """An object that exists, or that has begun to match the selectors."""


class Modified(_Change, frozen=True, tag="MODIFIED"):
    """An object in its new state."""


class Deleted(_Change, frozen=True, tag="DELETED"):
    """The last state of an object that is deleted or no longer matches the selectors."""


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Marked(msgspec.Struct, frozen=True):
    # Not an ObjectMeta: API servers before 1.34 write nulls into the rest of a bookmark's metadata.
    metadata: _Version


class Bookmark(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    """No event up to this resourceVersion is missing."""

    object: _Marked


class Failure(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    """The error that ends the watch."""

    object: Status


Change = Added | Modified | Deleted
WatchEvent = Change | Bookmark | Failure
_LIST_META: Final = Decoder(ListMeta)
_META: Final = Decoder(ObjectMeta)
_EVENTS: Final[Decoder[WatchEvent]] = Decoder(WatchEvent)  # type: ignore[arg-type]  # a union is no type[T] to mypy
_CHANGES: Final[dict[bytes, type[Change]]] = {b'"ADDED"': Added, b'"MODIFIED"': Modified, b'"DELETED"': Deleted}
_META_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(ObjectMeta))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object that does not have the requested shape: its metadata, and the problem."""

    metadata: ObjectMeta
    problem: str


def page(payload: bytes, *, as_type: type[T], path: str, on_unreadable: OnUnreadable | None = None) -> Page[T]:
    """Decode one page of a list.

    Raises `Undecodable` for a page that is not a list. An unreadable item goes to `on_unreadable` and is omitted;
    without that callback it raises `Undecodable` too.
    """
    whole: Decoder[Page[T]] = decoder(Page[as_type])  # type: ignore[valid-type]
    try:
        return whole.decode(payload)
    except UnreadableError as error:
        try:
            raw = _scanned_page(payload)
        except (UnreadableError, KeyError):
            raise Undecodable(path, problem=error.problem) from error
    if as_type is msgspec.Raw:
        # msgspec would scan each item for its end and fail on the same nesting.
        return cast("Page[T]", raw)
    items = [read(item, decoder=decoder(as_type), path=path) for item in raw.items or ()]
    return Page(metadata=raw.metadata, items=_readable(items, path=path, on_unreadable=on_unreadable))


def _readable(items: Iterable[T | Unread], *, path: str, on_unreadable: OnUnreadable | None) -> list[T]:
    found = []
    for item in items:
        if not isinstance(item, Unread):
            found.append(item)
        elif on_unreadable is None:
            meta = item.metadata
            raise Undecodable(path, problem=f"object {meta.namespace}/{meta.name}: {item.problem}")
        else:
            on_unreadable(item.metadata, f"cannot be read: {item.problem}")
    return found


def event(line: bytes) -> WatchEvent:
    """Decode one line of a watch. Raises `Undecodable`."""
    try:
        return _EVENTS.decode(line)
    except UnreadableError as error:
        try:
            return _scanned_change(line)
        except (UnreadableError, KeyError):
            raise Undecodable("a watch", problem=error.problem) from error


def read(raw: msgspec.Raw, *, decoder: Decoder[T], path: str) -> T | Unread:
    """Decode an object of a page or an event; `Unread` when only its metadata can be decoded.

    Raises `Undecodable` when the metadata cannot be decoded either. `metadata.managedFields` may be nested as deeply as
    the object and Dovetail does not use it: when that field alone is unreadable, the rest of the object is still
    decoded.
    """
    try:
        return decoder.decode(raw)
    except UnreadableError as error:
        try:
            return _scanned(bytes(raw), decoder=decoder, problem=error.problem)
        except (UnreadableError, KeyError):
            raise Undecodable(path, problem=error.problem) from error


def _scanned_page(payload: bytes) -> Page[msgspec.Raw]:
    from dovetail.kube import json_scanner  # noqa: PLC0415 - it brings numpy, which most commands do without

    parts = json_scanner.members(payload)
    items = [msgspec.Raw(item) for item in json_scanner.elements(parts.get("items", b"[]"))]
    return Page(metadata=_LIST_META.decode(parts["metadata"]), items=items)


def _scanned_change(line: bytes) -> Change:
    from dovetail.kube import json_scanner  # noqa: PLC0415 - as above

    parts = json_scanner.members(line)
    return _CHANGES[parts["type"]](msgspec.Raw(parts["object"]))


def _scanned(text: bytes, *, decoder: Decoder[T], problem: str) -> T | Unread:
    """The object without its managed fields, otherwise its metadata.

    One pass over the text, which may have megabytes.
    """
    from dovetail.kube import json_scanner  # noqa: PLC0415 - as above

    parts = json_scanner.members(text)
    metadata = json_scanner.members(parts["metadata"])
    if metadata.pop("managedFields", None) is not None:
        with suppress(UnreadableError):
            return decoder.decode(json_scanner.joined({**parts, "metadata": json_scanner.joined(metadata)}))
    kept = {name: metadata[name] for name in metadata if name in _META_FIELDS}
    return Unread(metadata=_META.decode(json_scanner.joined(kept)), problem=problem)


class LineBuffer:
    """Joins chunks into whole lines. A line may have `PAGE_BYTES`: objects of a megabyte exist."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without line ends and empty lines. Raises `TooLarge`."""
        if len(self._rest) + len(chunk) > PAGE_BYTES:
            raise TooLarge("a watch", most_bytes=PAGE_BYTES)
        if b"\n" not in chunk:
            self._rest += chunk
            return []
        *lines, rest = (bytes(self._rest) + chunk).split(b"\n")
        self._rest = bytearray(rest)
        return [line for line in lines if line.strip()]
