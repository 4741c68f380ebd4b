"""Files of strangers below one folder: what gbatch reads, and what `gjob fetch` writes.

A path is opened part by part below a descriptor of the folder, and no part may be a link (as Go's `os.Root`, but
stricter). So neither an archive nor a change of the folder meanwhile leads a read or write out of it.

RefusedError     what stays where it is: a name or a kind of file, and why
TooMuchError     more bytes, files or folders than the limits allow
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

MAX_DEPTH: Final = 64
_MOST_NAME_BYTES: Final = 255
_SHOWN_CHARACTERS: Final = 80
_FOLDER: Final = 0o755
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe would wait for its other end.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What open(2) says of a link, of a file in place of a folder, and of a folder in place of a file.
_IN_THE_WAY: Final = {
    errno.ELOOP: "a link is in its way",
    errno.ENOTDIR: "a file or link is in its way",
    errno.EISDIR: "a folder is in its way",
}


class RefusedError(Exception):
    """A file or folder that stays where it is; the text says why."""


class TooMuchError(Exception):
    """More than the limits allow; the text says which limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may go: bytes of all files together, and files and folders together."""

    size: int
    entries: int


class Tally:
    """Counts what goes against its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size = self._entries = 0

    def add(self, size: int) -> None:
        """Count a file or folder before it goes. Raises `TooMuchError` if it is one too many."""
        self._entries += 1
        self._size += size
        if self._entries > self._limits.entries:
            raise TooMuchError(f"more than {self._limits.entries} files and folders")
        if self._size > self._limits.size:
            raise TooMuchError(f"more than {self._limits.size} bytes")


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a relative path, without `.` and empty ones; none for the folder itself.

    Raises `RefusedError` for an absolute path, `..`, control characters, and parts that are too many or too long.
    """
    if not name.isprintable():
        raise RefusedError("its name has characters that cannot be printed")
    if name.startswith("/"):
        raise RefusedError("its path is absolute")
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if ".." in parts:
        raise RefusedError("its path has ..")
    if len(parts) > MAX_DEPTH:
        raise RefusedError(f"it is more than {MAX_DEPTH} folders deep")
    if any(len(part.encode()) > _MOST_NAME_BYTES for part in parts):
        raise RefusedError(f"its name has more than {_MOST_NAME_BYTES} bytes")
    return parts


def shown(name: str) -> str:
    """A stranger's name as one short line for a terminal."""
    line = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in name)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"


class RootFolder:
    """A folder, by a descriptor. Use it in `with`. Paths are the parts that `parts_of` returns.

    Methods raise `RefusedError` where a link or another kind of file is in the way, and `OSError`.
    """

    def __init__(self, path: Path) -> None:
        """Open the folder; `path` itself may lead through links, because the user named it."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @contextmanager
    def folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """A descriptor of a folder."""
        opened = os.dup(self._descriptor)
        try:
            for part in parts:
                with _nothing_in_the_way():
                    inner = os.open(part, _FOLDER_FLAGS, dir_fd=opened)
                os.close(opened)
                opened = inner
            yield opened
        finally:
            os.close(opened)

    def make_folder(self, parts: tuple[str, ...]) -> None:
        """Make a folder in one that is there, unless it is there too."""
        if parts:
            with self.folder(parts[:-1]) as above, suppress(FileExistsError):
                os.mkdir(parts[-1], _FOLDER, dir_fd=above)
        # Refuses a file or a link of that name.
        with self.folder(parts):
            pass

    def open_file(self, parts: tuple[str, ...]) -> IO[bytes]:
        """A regular file, to read."""
        with self.folder(parts[:-1]) as above, _nothing_in_the_way():
            opened = os.open(parts[-1], _READ_FLAGS, dir_fd=above)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise RefusedError("it is no regular file")
        return os.fdopen(opened, "rb")

    @contextmanager
    def new_file(self, parts: tuple[str, ...], *, mode: int) -> Iterator[IO[bytes]]:
        """A file to write. Once complete, it appears in place of a file or link of its name."""
        temporary = f".dovetail-{secrets.token_hex(8)}"
        with self.folder(parts[:-1]) as above:
            try:
                with os.fdopen(os.open(temporary, _NEW_FLAGS, mode, dir_fd=above), "wb") as file:
                    yield file
                with _nothing_in_the_way():
                    os.rename(temporary, parts[-1], src_dir_fd=above, dst_dir_fd=above)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=above)
                raise


@contextmanager
def _nothing_in_the_way() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if (why := _IN_THE_WAY.get(error.errno or 0)) is None:
            raise
        raise RefusedError(why) from error
