"""The commands of docs/guides/backup.md for a history on PostgreSQL, typed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from dovetail.api.historyquery import HistoryQuerySpec
from dovetail_operator.history.store import HistoryStore
from tests.operator_ import postgres
from tests.operator_.history.test_store import record

PAGE: Final = Path(__file__).parents[3] / "docs" / "guides" / "backup.md"


@pytest.fixture
def url() -> Iterator[str]:
    if postgres.programs() is None or shutil.which("pg_dump") is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres.running() as url:
        yield url


def typed(command: str, *, url: str, folder: Path) -> None:
    """Run the line of the page that begins with this command."""
    (line,) = re.findall(rf"^{command} .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    environment = {**os.environ, "HISTORY_URL": url}
    done = subprocess.run(
        ["bash", "-c", line], env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_dump_brings_every_record_back(url: str, tmp_path: Path) -> None:
    store = HistoryStore(url)
    store.open()
    wanted = record(devices=["GPU-1"], message="Worker 0 failed: “no”", log="one\ntwo")
    store.write([wanted])
    typed("pg_dump", url=url, folder=tmp_path)
    store.forget(before=datetime(2100, 1, 1, tzinfo=UTC))
    assert store.find("team", question=HistoryQuerySpec()) == ([], "")
    store.close()

    typed("pg_restore", url=url, folder=tmp_path)
    store = HistoryStore(url)
    store.open()
    assert store.find("team", question=HistoryQuerySpec(logs=True)) == ([wanted], "")
    store.close()
