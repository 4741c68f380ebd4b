"""Upper bound on the memory that a JSON text takes once decoded, from the text alone. Pure.

Three bytes of JSON (`{},`) become 72 bytes in Python, and 3.5 MiB of them 84 MiB, so the size of a body does not bound
its memory. Every value begins with `{` or `[` or follows one of these or a comma, and counting them takes a millisecond
for the largest body. Strings may contain these characters too, which makes the bound too high, never too low.
"""

from typing import Final

# sys.getsizeof in CPython 3.11, with the slot in the list or dictionary around it, rounded up.
_OBJECT: Final = 240
_ARRAY: Final = 96
_VALUE: Final = 72
# The text, its patch as JSON and as base64, and the answer that contains the patch.
_COPIES: Final = 5


def memory_of(body: bytes | bytearray) -> int:
    """The most bytes that a JSON text takes: its decoded values, and the copies of the text with its answer."""
    return _COPIES * len(body) + _OBJECT * body.count(b"{") + _ARRAY * body.count(b"[") + _VALUE * body.count(b",")
