"""Devices by name: `node:2`, `node:0,2`, `node:0-3`, `node:all`, `node:GPU-…` or a UUID alone. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.gpunode import GPUNode
from dovetail.query.errors import InvalidQueryError, NotFoundError

ALL: Final = "all"
_EXAMPLES: Final = "write node:2, node:0,2, node:0-3, node:all, or a device's UUID"
_MOST_INDEX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Named:
    """A device; `index` is None for a cordoned device that its node no longer reports."""

    node: str
    index: int | None
    uuid: str


def named(words: Iterable[str], *, gpunodes: Sequence[GPUNode]) -> list[Named]:
    """The devices that the words mean, each once, in the words' order.

    Raises `InvalidQueryError` for a word that is none, `NotFoundError` for a node or device that does not exist.
    """
    found = [device for word in words for device in _of_word(word, gpunodes=gpunodes)]
    return list(dict.fromkeys(found))


def _of_word(word: str, *, gpunodes: Sequence[GPUNode]) -> list[Named]:
    name, colon, which = word.partition(":")
    if not colon:
        return [_by_uuid(word, gpunodes=gpunodes)]
    if not name or not which:
        raise InvalidQueryError(f'"{word}" names no device: {_EXAMPLES}')
    node = next((each for each in gpunodes if each.metadata.name == name), None)
    if node is None:
        raise NotFoundError(f'"{word}": no node {name} reports devices{_those_that_do(gpunodes)}')
    devices = {device.index: device.uuid for device in node.status.devices}
    if which == ALL:
        return [Named(node=name, index=index, uuid=uuid) for index, uuid in devices.items()]
    if known := _known(node).get(which):
        return [known]
    return [_by_index(index, word=word, node=name, devices=devices) for index in _indexes(which, word=word)]


def _by_index(index: int, *, word: str, node: str, devices: dict[int, str]) -> Named:
    if index in devices:
        return Named(node=node, index=index, uuid=devices[index])
    has = f"{len(devices)} ({min(devices)} to {max(devices)})" if devices else "none"
    raise NotFoundError(f'"{word}": {node} has no device {index}; of devices it has {has}')


def _by_uuid(uuid: str, *, gpunodes: Sequence[GPUNode]) -> Named:
    for node in gpunodes:
        if found := _known(node).get(uuid):
            return found
    if any(node.metadata.name == uuid for node in gpunodes):
        raise InvalidQueryError(
            f'"{uuid}" is a node: write {uuid}:2 for one of its devices, or {uuid}:{ALL} for each of them'
        )
    raise NotFoundError(f'no node reports a device "{uuid}": {_EXAMPLES}')


def _known(node: GPUNode) -> dict[str, Named]:
    """The node's devices by UUID: what is cordoned and was taken out of the node too."""
    name = node.metadata.name
    gone = {uuid: Named(node=name, index=None, uuid=uuid) for uuid in node.spec.cordoned}
    return gone | {each.uuid: Named(node=name, index=each.index, uuid=each.uuid) for each in node.status.devices}


def _indexes(which: str, *, word: str) -> list[int]:
    found: list[int] = []
    for part in which.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdigit() and int(end) < _MOST_INDEX for end in ends):
            raise InvalidQueryError(
                f'"{word}": "{part}" is neither an index, a range nor a UUID of that node; {_EXAMPLES}'
            )
        if int(ends[0]) > int(ends[-1]):
            raise InvalidQueryError(f'"{word}": the range {part} goes from a smaller index to a larger one')
        found += range(int(ends[0]), int(ends[-1]) + 1)
    return found


def _those_that_do(gpunodes: Sequence[GPUNode]) -> str:
    names = sorted(node.metadata.name for node in gpunodes)
    if not names:
        return "; none does yet"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"; those that do: {', '.join(names[:5])}{more}"
