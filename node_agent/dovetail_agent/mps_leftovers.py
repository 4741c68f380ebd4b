"""What pods that have ended left in the shared memory of a node's MPS clients.

A file in memory stays when its pod ends, and counts for nobody: a tenant could take memory of the node for good. Nobody
but MPS itself uses the folder while the node has no Fractional tenant.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from dovetail.logs import get_logger

log = get_logger(__name__)

# MPS's own segments are a few MiB in a few files.
_BEARABLE_BYTES: Final = 64 << 20
_BEARABLE_FILES: Final = 1000
_SECONDS: Final = 60.0


class SharedMemory:
    """The folder that every client has as `/dev/shm`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def left_over(self) -> str:
        """How much is in it, where that is too much to be MPS's own; empty where it is not, or no mount of its own."""
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
        """Remove every file. By a program: a tenant may have nested folders deeper than Python can recurse."""
        command = ["find", str(self._folder), "-mindepth", "1", "-xdev", "-delete"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            problem = done.stderr.strip()[:300]
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        log.info("shared memory of MPS cleared", folder=str(self._folder), problem=problem)
