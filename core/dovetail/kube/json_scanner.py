"""Splits JSON at its outermost level, however deeply the rest is nested. Pure.

msgspec, like every JSON decoder for Python, recurses even into values that it skips. A value nested deeper than the
interpreter's stack (1,000 levels by default) makes the whole text unreadable, and the API server stores objects of
10,000 levels. This scanner has no stack. It scans blocks of the text with numpy, in time linear in the text's length
and memory linear in the number of parts. Use it only where msgspec has failed.

The scanner does not validate: the caller decodes the parts. Raises `UnreadableError` where brackets or quotes do not
match.

A module of its own: an algorithm that knows nothing of watches.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.decoding import UnreadableError, decode

_Bytes = npt.NDArray[np.uint8]

_OPENS, _CLOSES, _SEPARATES = 1, 2, 3
_KINDS: Final = np.zeros(256, np.uint8)
_KINDS[list(b"{[")] = _OPENS
_KINDS[list(b"}]")] = _CLOSES
_KINDS[ord(",")] = _SEPARATES
# How each kind changes the depth.
_STEPS: Final = np.array([0, 1, -1, 0], np.int32)
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
# Sized so that a block and its temporary arrays fit into a core's cache.
_BLOCK_BYTES: Final = 1 << 17
# Possessive quantifiers: a name of a megabyte must not leave a megabyte of positions to backtrack to.
_NAME: Final = re.compile(rb'\s*("(?:[^"\\]++|\\.)*+")\s*:')


def members(text: bytes) -> dict[str, bytes]:
    """Split an object into its members: each name with the text of its value.

    Raises `UnreadableError`.
    """
    found = {}
    for part in _parts(text, opening=b"{"):
        name = _NAME.match(part)
        if name is None:
            raise UnreadableError("a member of an object has no name")
        found[decode(name[1], as_type=str)] = part[name.end() :].strip()
    return found


def elements(text: bytes) -> list[bytes]:
    """Split an array into the texts of its elements. Raises `UnreadableError`."""
    return list(_parts(text, opening=b"["))


def joined(parts: Mapping[str, bytes]) -> bytes:
    """The text of an object with these members."""
    return msgspec.json.encode({name: msgspec.Raw(part) for name, part in parts.items()})


def _parts(text: bytes, *, opening: bytes) -> Iterator[bytes]:
    cuts = list(_outermost(text))
    if len(cuts) < 2 or text[: cuts[0] + 1].strip() != opening or text[cuts[-1] + 1 :].strip():
        raise UnreadableError(f"it is not one value that begins with {opening.decode()}")
    if len(cuts) == 2 and not text[cuts[0] + 1 : cuts[1]].strip():
        return
    for start, end in itertools.pairwise(cuts):
        part = text[start + 1 : end].strip()
        if not part:
            raise UnreadableError("a part of it is empty")
        yield part


def _outermost(text: bytes) -> Iterator[int]:
    """Byte offsets of the outermost brackets and of each separator between them, in order."""
    escaped, inside, depth = False, 0, 0
    for offset in range(0, len(text), _BLOCK_BYTES):
        block = np.frombuffer(text, np.uint8, min(_BLOCK_BYTES, len(text) - offset), offset)
        quotes, escaped = _quotes(block, escaped=escaped)
        # 1 from each opening quote to the byte before its closing quote.
        strings = np.bitwise_xor.accumulate(quotes) ^ inside
        inside = int(strings[-1])
        kinds = np.where(strings, 0, _KINDS[block])
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        depths = depth + np.cumsum(_STEPS[kinds], dtype=np.int32)
        depth = int(depths[-1]) if len(depths) else depth
        # A closing bracket belongs to the level that it ends.
        yield from (places[depths + (kinds == _CLOSES) == 1] + offset).tolist()
    if depth or inside:
        raise UnreadableError("its brackets or quotes do not match")


def _quotes(block: _Bytes, *, escaped: bool) -> tuple[_Bytes, bool]:
    """Mark the quotes that no backslash escapes.

    `block` has shape [n]. Returns an array of shape [n] with 1 at each unescaped quote and 0 elsewhere, and whether the
    next block begins with an escaped character.
    """
    quotes = (block == _QUOTE).astype(np.uint8)
    backslashes = block == _BACKSLASH
    if escaped:
        quotes[0] = 0
        backslashes[0] = False
    places = np.flatnonzero(backslashes)
    if not len(places):
        return quotes, False
    # In a run of backslashes the first escapes the second, the third escapes the fourth, and so on.
    first = np.diff(places, prepend=-2) != 1
    order = np.arange(len(places))
    escaping = places[(order - np.maximum.accumulate(np.where(first, order, 0))) % 2 == 0]
    after = escaping + 1
    quotes[after[after < len(block)]] = 0
    return quotes, bool(after[-1] == len(block))
