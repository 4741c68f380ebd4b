"""Decode JSON and plain values from outside into types, with one error for every failure.

Pure.

Everything that another party wrote (an API object, an annotation, a file, the output of a program) is decoded only
here. msgspec raises more than its own errors: `RecursionError` for a text nested deeper than the interpreter's stack,
`ValueError` for an integer of more than 4,300 digits, `OverflowError` for one that exceeds a machine word, and
`UnicodeDecodeError`. A caller that catches only some of them crashes.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")
Text = bytes | bytearray | memoryview | str | msgspec.Raw

# MsgspecError is a plain Exception; UnicodeDecodeError is a ValueError.
_FAILURES: Final = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)
_LONGEST_PROBLEM: Final = 300


class UnreadableError(ValueError):
    """A text or value from outside of the wrong shape; `problem` says why in a few words."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class Decoder(Generic[T]):
    """Decodes JSON of one type.

    Create it once: to build the type's schema costs far more than a decode.
    """

    def __init__(self, as_type: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(as_type)

    def decode(self, text: Text) -> T:
        """The value. Raises `UnreadableError`, whatever the text is."""
        try:
            return self._decoder.decode(text)
        except _FAILURES as error:
            raise UnreadableError(problem_of(error)) from error


def decode(text: Text, *, as_type: type[T]) -> T:
    """JSON as a value of that type. Raises `UnreadableError`, whatever the text is."""
    try:
        return msgspec.json.decode(text, type=as_type)
    except _FAILURES as error:
        raise UnreadableError(problem_of(error)) from error


def convert(value: Any, *, as_type: type[T], strict: bool = True) -> T:
    """Plain values (dictionaries, lists, texts) as a value of that type.

    Raises `UnreadableError`.

    With `strict=False` a text may represent a number, as in Kubernetes' own decoders.
    """
    try:
        return msgspec.convert(value, as_type, strict=strict)
    except _FAILURES as error:
        raise UnreadableError(problem_of(error)) from error


def problem_of(error: Exception) -> str:
    """The problem in a few words for a log line or a status.

    Cut to a maximum length, because it quotes texts of others.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error)[:_LONGEST_PROBLEM] or type(error).__name__
