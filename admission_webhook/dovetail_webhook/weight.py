"""How much memory a JSON text takes at most, from the text alone. Pure.

Three bytes of JSON (`{},`) become 72 bytes of Python, and 3.5 MiB of them 84 MiB: the size of a body says nothing of
the memory that its values take. Every value begins with one of three characters or follows a comma, and counting these
takes a millisecond for the largest body. Texts may hold the characters too: then the answer is too high, never too low.
"""

from typing import Final

# sys.getsizeof in CPython 3.11, with the slot in the list or dictionary around it, rounded up.
_OBJECT: Final = 240
_ARRAY: Final = 96
_VALUE: Final = 72
# The text, its patch as JSON and as base64, and the answer around that.
_COPIES: Final = 5


def memory_of(body: bytes | bytearray) -> int:
    """Bytes that a JSON text's values take at most once they are Python's, with the text and the answer."""
    return _COPIES * len(body) + _OBJECT * body.count(b"{") + _ARRAY * body.count(b"[") + _VALUE * body.count(b",")
