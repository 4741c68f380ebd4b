"""Programs from PyPI in an environment of their own, outside of the checkout and of the environment of the tests."""

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from uv import find_uv_bin

from dovetail_sandbox.programs import locate

# The largest has some 150 packages; an index may be slow.
_INSTALL_SECONDS = 1200


def python_of(lock: Path) -> Path:
    """The Python of the environment that has exactly the packages of a lock.

    uv creates it once for each content of the lock, in the sandbox's cache; one process at a time.
    """
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = locate.cache_folder().with_name("environments") / f"{lock.stem}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    python, complete = folder / "bin" / "python", folder / "complete"
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not complete.exists():
            venv.create(folder, symlinks=True)
            _install(lock, python=python)
            complete.touch()
    return python


def _install(lock: Path, *, python: Path) -> None:
    command = [find_uv_bin(), "pip", "sync", "--quiet", f"--python={python}", str(lock)]
    environment = {"UV_DEFAULT_INDEX": index, **os.environ} if (index := _index_of_pip()) else {**os.environ}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
    )
    assert done.returncode == 0, f"{lock.name}: {done.stderr}"


def _index_of_pip() -> str:
    """The package index that is configured for pip; uv does not read pip's configuration."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
