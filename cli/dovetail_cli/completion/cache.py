"""Values that were read some seconds ago: a person presses Tab several times for one word."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from dovetail.decoding import Decoder, UnreadableError

# A candidate and what is said about it.
Value = tuple[str, str]

FRESH_SECONDS: Final = 5.0
_VALUES: Final[Decoder[list[Value]]] = Decoder(list[Value])


def cached(
    question: Sequence[str], *, read: Callable[[], Sequence[Value]], now: Callable[[], float] = time.time
) -> list[Value]:
    """The values for a question, such as the kind, the kubeconfig and the namespace.

    Reads them if the answer on disk is older than `FRESH_SECONDS`, and keeps what was read. A cache that cannot be read
    or written is no error.
    """
    file = _folder() / hashlib.sha256("\0".join(question).encode("utf-8", "surrogateescape")).hexdigest()
    with suppress(OSError, UnreadableError):
        if 0 <= now() - file.stat().st_mtime < FRESH_SECONDS:
            return _VALUES.decode(file.read_bytes())
    values = list(read())
    with suppress(OSError):
        _write(file, data=msgspec.json.encode(values))
    return values


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "completion"


def _write(file: Path, *, data: bytes) -> None:
    """Replace the file at once; only its user may read it: names of jobs are not for others."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
    written.replace(file)
