"""The bearer token of the user of a sandbox's kubeconfig, who is known there by a client certificate.

The gateway takes tokens alone. With this one, the console, Python programs and scripts act as the same user as the
commands: the jobs of all are that person's own. The API server reads the file at its start (`--token-auth-file`).
"""

import csv
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail_sandbox.errors import SandboxError

# The user and the group in the certificate that kwokctl makes for administrators.
ADMINISTRATOR: Final = "kwok-admin"
_GROUP: Final = "system:masters"
_BYTES: Final = 32
_PRIVATE: Final = 0o600


def write(path: Path, *, user: str) -> None:
    """Write a token of `user`, an administrator, for the API server. One that a kept queue has stays valid."""
    if _row(path)[1:2] == [user]:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        csv.writer(file).writerow([secrets.token_urlsafe(_BYTES), user, user, _GROUP])


def read(path: Path) -> str:
    """Return the token. Raises `SandboxError` where a sandbox has none."""
    if not (row := _row(path)):
        raise SandboxError(
            "an earlier version started this sandbox, and it has no token for its user: "
            "`dovetail sandbox down`, then `dovetail sandbox up`"
        )
    return row[0]


def _row(path: Path) -> list[str]:
    """The token and its user; empty without one."""
    with suppress(FileNotFoundError), path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])
    return []
