"""A directory as one compressed archive: regular files and folders, nothing else."""

import os
import tarfile
from typing import Final, Protocol

from dovetail_cli.submit.workdir.listing import Entry, Listing
from dovetail_cli.submit.workdir.root_folder import RefusedError, RootFolder, parts_of
from dovetail_cli.ui.errors import CommandError

# A ConfigMap has at most 1 MiB.
MAX_BYTES: Final = 900 * 1024
# Bounds the work of the container that unpacks: 900 KiB of zeros would unpack to almost a gigabyte.
MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024
_FILE: Final = 0o644
_PROGRAM: Final = 0o755


class TooLargeError(Exception):
    """The archive is larger than what goes along in a ConfigMap."""


class Sink(Protocol):
    """Where an archive is written: a pipe, or memory."""

    def write(self, data: bytes, /) -> object:
        """Take some bytes."""


class _Bounded:
    """Bytes in memory, at most `MAX_BYTES`."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes, /) -> None:
        self.data += data
        if len(self.data) > MAX_BYTES:
            raise TooLargeError


def pack(listing: Listing) -> bytes:
    """The archive, compressed by gzip, at most `MAX_BYTES`.

    Raises `TooLargeError`, or `CommandError` for a file that cannot be read.
    """
    if listing.size > MAX_UNPACKED_BYTES:
        raise TooLargeError
    packed = _Bounded()
    write(listing, sink=packed)
    return bytes(packed.data)


def write(listing: Listing, *, sink: Sink) -> None:
    """Write the archive, compressed by gzip.

    Raises `CommandError` for a file that cannot be read.
    """
    # busybox reads long names in GNU's format, not in PAX's.
    with (
        RootFolder(listing.root) as root,
        tarfile.open(fileobj=sink, mode="w|gz", format=tarfile.GNU_FORMAT) as archive,  # type: ignore[call-overload]  # it only writes
    ):
        for entry in listing.entries:
            if entry.folder:
                archive.addfile(_header(entry.path, kind=tarfile.DIRTYPE, mode=_PROGRAM))
            else:
                _add_file(archive, entry=entry, root=root)


def _add_file(archive: tarfile.TarFile, *, entry: Entry, root: RootFolder) -> None:
    try:
        # Of a link, its target in the directory: what is opened is never a link.
        file = root.open_file(parts_of(entry.target or entry.path))
    except RefusedError as error:
        raise CommandError(f"{entry.path} cannot go along: it changed while it was read: {error}") from error
    except OSError as error:
        raise CommandError(f"{entry.path} cannot go along: {error.strerror}") from error
    with file:
        about = os.fstat(file.fileno())
        header = _header(entry.path, kind=tarfile.REGTYPE, mode=_PROGRAM if entry.executable else _FILE)
        header.size, header.mtime = about.st_size, int(about.st_mtime)
        try:
            archive.addfile(header, file)
        except OSError as error:
            if error.errno is not None:
                # The sink's, such as a pipe that is closed.
                raise
            raise CommandError(f"{entry.path} cannot go along: it became shorter while it was read") from error


def _header(path: str, *, kind: bytes, mode: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.type, header.mode = kind, mode
    return header
