"""The folder that MPS's clients see in place of the pipes: it has the daemon's socket `control` and nothing else.

A daemon's pipes have a second socket, `control_privileged`. Through it, a client that is root in its container can
change the limits of all clients and end the daemon; through `control` alone the daemon serves clients and refuses that
(seen with driver 580). The socket is here as a hard link, so both folders have to be in one file system.
"""

import os
from pathlib import Path
from typing import Final

from dovetail_agent.mps.control import ControlError

_SOCKET: Final = "control"


class ClientFolder:
    """Keeps `folder` like the daemon's `pipes`, for clients."""

    def __init__(self, folder: Path, *, pipes: Path) -> None:
        self.folder = folder
        self._pipes = pipes

    def renew(self) -> None:
        """Link the socket of the daemon that runs now. Raises `ControlError`."""
        source, link = self._pipes / _SOCKET, self.folder / _SOCKET
        fresh = self.folder / f".{_SOCKET}.new"
        try:
            if link.exists() and link.samefile(source):
                return
            fresh.unlink(missing_ok=True)
            os.link(source, fresh, follow_symlinks=False)
            fresh.replace(link)
        except OSError as error:
            raise ControlError("link", problem=f"clients get no socket: {error.filename}: {error.strerror}") from error
