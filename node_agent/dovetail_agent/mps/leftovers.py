"""Frees the shared memory that ended pods left in the folder of a node's MPS clients.

A file in memory stays when its pod ends and counts towards no pod's limit: a tenant could take the node's memory for
good. Only MPS itself uses the folder while the node has no Fractional tenant.
"""

import os
import time
from pathlib import Path
from typing import Final
from uuid import uuid4

from dovetail.logs import get_logger

log = get_logger(__name__)

# MPS's own segments take a few MiB in a few files.
_BEARABLE_BYTES: Final = 64 << 20
_BEARABLE_FILES: Final = 1000
_SECONDS: Final = 30.0
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SharedMemory:
    """The folder that every client mounts as `/dev/shm`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def left_over(self) -> str:
        """Describe the folder's content if it is too large to be MPS's own; empty otherwise.

        Empty also if the folder is not a mount of its own or cannot be read.
        """
        try:
            if self._folder.stat().st_dev == self._folder.parent.stat().st_dev:
                return ""
            found = os.statvfs(self._folder)
        except OSError:
            return ""
        used, files = (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree
        if used <= _BEARABLE_BYTES and files <= _BEARABLE_FILES:
            return ""
        return f"{used >> 20} MiB in {files} files"

    def clear(self) -> None:
        """Remove every file, for at most `_SECONDS` seconds."""
        problem, end = "", time.monotonic() + _SECONDS
        try:
            top = os.open(self._folder, _OPEN)
            try:
                while (found := os.listdir(top)) and time.monotonic() < end:  # noqa: PTH208 - a descriptor
                    for name in found:
                        _remove(name, top=top)
            finally:
                os.close(top)
        except OSError as error:
            problem = str(error)
        log.info("shared memory of MPS cleared", folder=str(self._folder), problem=problem)


def _remove(name: str, *, top: int) -> None:
    """Remove a file, or a folder whose own folders first move up to `top`.

    The depth of a tenant's folders therefore does not matter: neither the stack nor a path grows.
    """
    try:
        os.unlink(name, dir_fd=top)
    except IsADirectoryError:
        folder = os.open(name, _OPEN, dir_fd=top)
        try:
            for each in os.listdir(folder):  # noqa: PTH208 - a descriptor
                _lift(each, folder=folder, top=top)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)


def _lift(name: str, *, folder: int, top: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        os.rename(name, uuid4().hex, src_dir_fd=folder, dst_dir_fd=top)
