"""Whole numbers that are written with a point: JSON does not distinguish 2.0 from 2, and msgspec does. Pure."""

from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from dovetail.decoding import Decoder, Text, UnreadableError, decode

T = TypeVar("T")


def decode_request(text: Text, *, as_type: type[T], decoder: Decoder[T] | None = None) -> T:
    """JSON as a value of that type, where 2.0 may stand for 2. Raises `UnreadableError`."""
    try:
        return decode(text, as_type=as_type) if decoder is None else decoder.decode(text)
    except UnreadableError:
        with suppress(UnreadableError):
            # As text again, because a field may be kept as text.
            return decode(msgspec.json.encode(whole(decode(text, as_type=Any))), as_type=as_type)
        raise


def whole(value: Any) -> Any:
    """The value with 2.0 as 2, also inside objects and lists."""
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(whole, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value
