"""Whole numbers in texts that anybody may have written: labels and annotations. Pure."""

from typing import Final

# Enough for whatever is counted here, and far below what Python refuses to read as a number.
_MOST_DIGITS: Final = 9


def read_whole(text: str, *, otherwise: int) -> int:
    """The number that a text of a few ASCII digits is; `otherwise` for any other text."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else otherwise
