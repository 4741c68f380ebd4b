"""The bearer token of the user of a sandbox's kubeconfig, who is known there by a client certificate.

The gateway takes tokens alone. With this one, the console acts as the same user as the commands: their jobs are that
person's own on its pages. The API server reads the file at its start (`--token-auth-file`).
"""

import csv
import os
import secrets
from pathlib import Path
from typing import Final

from dovetail_sandbox.errors import SandboxError

# The user and the group in the certificate that kwokctl makes for administrators.
ADMINISTRATOR: Final = "kwok-admin"
_GROUP: Final = "system:masters"
_BYTES: Final = 32
_PRIVATE: Final = 0o600


def write(path: Path, *, user: str) -> None:
    """Write a new token of `user`, an administrator, for the API server."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        csv.writer(file).writerow([secrets.token_urlsafe(_BYTES), user, user, _GROUP])


def read(path: Path) -> str:
    """Return the token. Raises `SandboxError` where a sandbox has none."""
    try:
        return path.read_text(encoding="utf-8").partition(",")[0]
    except FileNotFoundError as error:
        raise SandboxError(
            "an earlier version started this sandbox, and it has no token for the console: "
            "`dovetail sandbox down`, then `dovetail sandbox up`"
        ) from error
