"""Unpacks a container's archive, which may be hostile: regular files and folders alone.

`tarfile` only reads the headers here. It writes nothing, because its filters have let archives out of the folder
(CVE-2025-4517), and the Pythons that have this are supported.
"""

import gzip
import math
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dovetail_cli.submit.workdir.root_folder import (
    Limits,
    RefusedError,
    RootFolder,
    Tally,
    TooMuchError,
    parts_of,
    shown,
)
from dovetail_cli.ui.errors import CommandError

MAX_ENTRIES: Final = 100_000
# Stay free on the disk of the folder.
SPARE_BYTES: Final = 256 << 20
# `tarfile` reads a header in one piece, of the size that the archive says. A path of Linux has 4 KiB at most.
_MOST_HEADER_BYTES: Final = 16 << 10
_PIECE_BYTES: Final = _MOST_HEADER_BYTES
_NAMED: Final = 3
_FILE: Final = 0o644
_PROGRAM: Final = 0o755
_EXECUTABLE: Final = 0o100
_FILES: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE})
# The end of the year 9999.
_LAST_TIME: Final = 253_402_300_799
# What `tarfile`, gzip and zlib raise for archives that are cut or made to harm.
_BROKEN: Final = (
    tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError, LookupError, RecursionError,
)  # fmt: skip


class BrokenArchiveError(CommandError):
    """The container sent no archive, or a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """What came.

    count           files
    refused         the first members that stayed, each with the reason
    refused_count   all members that stayed
    """

    count: int = 0
    refused: tuple[str, ...] = ()
    refused_count: int = 0


def unpack(archive: IO[bytes], *, into: Path, limits: Limits | None = None) -> Unpacked:
    """Unpack what a container sent, compressed by gzip, into one folder.

    Nothing outside of it changes, whatever the archive says.
    `limits` are by default what fits on the disk, and `MAX_ENTRIES`. Raises `BrokenArchiveError` and `CommandError`.
    """
    try:
        into.mkdir(parents=True, exist_ok=True)
        if limits is None:
            free = shutil.disk_usage(into).free
            limits = Limits(size=max(0, free - SPARE_BYTES), entries=MAX_ENTRIES)
        with RootFolder(into) as root:
            return _unpacked(archive, root=root, tally=Tally(limits))
    except TooMuchError as error:
        raise CommandError(
            f"{into}: the container sends {error} (of the disk, {SPARE_BYTES >> 20} MiB stay free), so the rest stays "
            "there: fetch a part of it, such as results/best.pt"
        ) from error
    except OSError as error:
        raise CommandError(f"{error.filename or into}: {error.strerror or error}") from error


def _unpacked(archive: IO[bytes], *, root: RootFolder, tally: Tally) -> Unpacked:
    count, refused_count = 0, 0
    refused: list[str] = []
    for members, member in _members(archive):
        # A member that stays has bytes too, which are read and thrown away.
        tally.add(max(0, member.size))
        try:
            _write(member, members=members, root=root)
            count += not member.isdir()
        except (RefusedError, FileNotFoundError) as error:
            # An archive has folders before what is in them, so that each member makes at most one file or folder.
            why = "its folder is not there" if isinstance(error, FileNotFoundError) else str(error)
            refused_count += 1
            if len(refused) < _NAMED:
                refused.append(f"{shown(member.name)} ({why})")
    return Unpacked(count=count, refused=tuple(refused), refused_count=refused_count)


def _members(archive: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    with _readable():
        members = tarfile.open(fileobj=_Forward(archive), mode="r:")  # type: ignore[call-overload]  # noqa: SIM115 - it owns nothing that is to be closed
    while True:
        with _readable():
            member = members.next()
        if member is None:
            return
        yield members, member
        # `tarfile` keeps them for later members: an endless archive would fill the memory.
        members.members, members.pax_headers = [], {}


def _write(member: tarfile.TarInfo, *, members: tarfile.TarFile, root: RootFolder) -> None:
    """Write one member. Raises `RefusedError`."""
    parts = parts_of(member.name)
    if member.isdir():
        root.make_folder(parts)
        return
    if member.type not in _FILES or member.issparse() or not parts:
        raise RefusedError("it is a link" if member.issym() or member.islnk() else "it is neither file nor folder")
    mode = _PROGRAM if member.mode & _EXECUTABLE else _FILE
    with _readable():
        content = members.extractfile(member)
    assert content is not None, "a regular file has content"
    with root.new_file(parts, mode=mode) as file:
        while piece := _read(content):
            file.write(piece)
        file.flush()
        if math.isfinite(member.mtime) and 0 <= member.mtime <= _LAST_TIME:
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _read(content: IO[bytes]) -> bytes:
    with _readable():
        return content.read(_PIECE_BYTES)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise BrokenArchiveError(f"the container sent no whole archive: {shown(str(error))}") from error


class _Forward:
    """What gzip unpacks, for `tarfile`: read forward only, in small pieces.

    Otherwise a header makes `tarfile` read gigabytes into memory, or one member without end (CVE-2025-8194).
    """

    def __init__(self, archive: IO[bytes]) -> None:
        self._unpacked = gzip.GzipFile(fileobj=archive, mode="rb")
        self._position = 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        piece = self._unpacked.read(size)
        self._position += len(piece)
        return piece

    def seek(self, position: int) -> None:
        if position < self._position:
            raise tarfile.ReadError("a member that ends before it begins")
        while self._position < position:
            if not self.read(min(position - self._position, _PIECE_BYTES)):
                return

    def tell(self) -> int:
        return self._position
