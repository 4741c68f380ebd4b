"""A PostgreSQL of the tests' own, where one is installed: real, in a temporary folder, on a socket there."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "postgres"


def programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`; None where there is none."""
    if found := shutil.which("pg_ctl"):
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return versions[-1].parent if versions else None


@contextmanager
def running() -> Iterator[str]:
    """Its URL, for as long as it runs."""
    found = programs()
    assert found is not None, "look for its programs first"
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        # It refuses to run as root.
        shutil.chown(folder, USER)
    try:
        _run(found / "initdb", "-D", folder / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        _run(found / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://{USER}@/postgres?host={folder}"
        finally:
            _run(found / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    if os.geteuid() == 0:
        words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", *words]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", timeout=120)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of one for all tests of a process; skips them where none is installed."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with running() as url:
        yield url
