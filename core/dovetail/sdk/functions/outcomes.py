"""What came back from a function: its value, or the error that says why there is none."""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dovetail.answers.jobs import JobRow
from dovetail.api.reasons.codes import EXCEEDS_CAPACITY
from dovetail.decoding import UnreadableError, decode
from dovetail.gpu.request import RequestError, parse
from dovetail.sdk.errors import FunctionFailedError
from dovetail.sdk.functions import runner


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["value", "error", "refused"]
    text: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one call: a value, the error that the function raised, or why nothing came back."""

    kind: Literal["value", "error", "refused"]
    text: str
    traceback: str
    data: bytes

    def value(self, *, of: str) -> Any:
        """The value. Raises the function's own error, from its traceback, or `FunctionFailedError` about the job.

        What a function raises to end its process or an iteration, such as SystemExit, would end one here: it is never
        raised.
        """
        if self.kind == "value":
            return self._loaded(of=of)
        if self.kind == "error" and self.data:
            error = self._loaded(of=of)
            if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
                raise error from FunctionFailedError(of, problem=self.text, traceback=self.traceback)
        raise FunctionFailedError(of, problem=self.text, traceback=self.traceback)

    def _loaded(self, *, of: str) -> Any:
        try:
            return pickle.loads(self.data)  # noqa: S301 - the user's own function made it
        except Exception as error:
            problem = self.text or f"its result cannot be read here: {type(error).__name__}: {error}"
            raise FunctionFailedError(of, problem=problem, traceback=self.traceback) from error


def read(data: bytes) -> Outcome:
    """The outcome that the runner wrote. Raises `UnreadableError`."""
    line, _, rest = data.partition(b"\n")
    head = decode(line, as_type=_Head)
    return Outcome(kind=head.kind, text=head.text, traceback=head.traceback, data=rest)


def begin_of(word: str) -> str:
    """How the lines of an outcome with this word begin."""
    return f"{runner.MARK} {word} "


def in_log(lines: Iterable[str], *, word: str) -> Outcome | None:
    """The last outcome that the runner printed with this word; None without one, or if a line of it is missing."""
    import base64

    parts, found = list[str](), None
    for line in lines:
        _, mark, said = line.partition(begin_of(word))
        if not mark or not line.startswith(mark):
            continue
        place, _, text = said.partition(" ")
        number, _, count = place.partition("/")
        parts = [text] if number == "1" else [*parts, text]
        if number == count == str(len(parts)):
            try:
                found = read(base64.b64decode("".join(parts)))
            except (ValueError, UnreadableError):
                found = None
    return found


def is_hopeless(row: JobRow) -> bool:
    """Whether no node of the cluster could ever run the job, which waits all the same."""
    if row.phase != "Queued" or row.reason != EXCEEDS_CAPACITY.code:
        return False
    try:
        return not (row.request and parse(row.request).may_be_partitioned_for)
    except RequestError:
        return True


def never(row: JobRow) -> str:
    """Why the result of a job that can never start is not waited for, and what would help."""
    otherwise = ". Without a GPU: gpu=0, or cpu_fallback=True" if row.request else ""
    return f"it can never start here: {row.message}{otherwise}"
