"""A folder for each run of pytest, which all its processes have, and the end of the sandboxes that they share."""

import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Final

import pytest

_FOLDER: Final = "DOVETAIL_TEST_RUN"


def folder(config: pytest.Config) -> Path:
    """The folder of this run, which whoever uses it first makes."""
    return config.stash[_path]


_path = pytest.StashKey[Path]()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """The workers of a parallel run inherit the variable."""
    if not _is_worker(config):
        os.environ[_FOLDER] = str(Path(tempfile.gettempdir(), f"dovetail-tests-{uuid.uuid4().hex}"))
    config.stash[_path] = Path(os.environ[_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """After the last worker has ended, however that came about."""
    if _is_worker(config) or _path not in config.stash:
        return
    if (config.stash[_path] / "sandboxes").exists():
        from tests.cluster.sandboxes import end_all  # only a run with a sandbox loads its code

        end_all(config.stash[_path] / "sandboxes")
    shutil.rmtree(config.stash[_path], ignore_errors=True)
