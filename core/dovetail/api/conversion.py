"""Structs as plain values: dictionaries, lists, texts. Pure."""

from typing import Any

import msgspec

from dovetail.decoding import decode


def values_of(value: Any) -> Any:
    """A struct as plain values; JSON text in it, such as a GPUJob's template, is decoded."""
    return msgspec.to_builtins(value, enc_hook=_decoded)


def _decoded(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return decode(value, as_type=Any)
    raise NotImplementedError(f"{type(value).__name__} is no JSON value")
