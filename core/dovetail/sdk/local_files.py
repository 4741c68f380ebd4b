"""Files that a submission leaves for a job on this machine: only their user may read them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail.jobs.array_tasks import ARRAY_IDS, TASK_IDS

# Variables of the job that a submission may happen in. Another job must not inherit them.
_OF_A_JOB: Final = (*TASK_IDS, *ARRAY_IDS, names.ENV_CONFIG)
_PRIVATE: Final = 0o600


def own(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that a job inherits."""
    return {name: value for name, value in environ.items() if name not in _OF_A_JOB}


def encoded(environment: Mapping[str, str]) -> bytes:
    """The variables as the local node reads them."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())


def keep(data: bytes, *, file: Path) -> None:
    """Write a new file, and the folders above it. Raises `OSError`."""
    for folder in reversed(file.parents):
        # The mode of `parents=True` counts for the last one only.
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(handle, "wb") as opened:
        opened.write(data)
