"""Many records, made by SQLite itself; and, as a program, what it costs a process to answer questions about them.

`python -m tests.operator_.history_rows 1000000 4000` prints the figures of a million records with logs of 4,000 bytes.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import sqlalchemy as sql

from dovetail.api.historyquery import HistoryQuery, HistoryQuerySpec, JobRecord
from dovetail.api.meta import ObjectMeta
from dovetail_operator.history.questions import answer
from dovetail_operator.history.schema import JOBS
from dovetail_operator.history.store import HistoryStore

# As long as those of real jobs are.
_RECORD = JobRecord(
    uid="u", namespace="team", name="job", user="ada", phase="Succeeded", request="2(A100)", gpus=2.0,
    nodes=["gpu-node-01"], devices=["GPU-e7f6cbab-d21f-537c-be4a-95a25ee740b8"] * 2, submitted="2026-01-01T12:00:00Z",
    started="2026-01-01T12:01:00Z", ended="2026-01-01T13:00:00Z", message="Done",
)  # fmt: skip
_INSERT = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO dovetail_jobs (uid, namespace, name, number, user, phase, ended, gpu_seconds, record, log, project,
                           run_seconds, wait_seconds, peak_mib, mean_utilization)
SELECT 'uid-' || i, 'team', printf('%07d-', i % :names) || replace(hex(zeroblob(64)), '0', 'n'), i,
       'user-' || (i % 300), CASE i % 10 WHEN 0 THEN 'Failed' ELSE 'Succeeded' END,
       printf('2026-%02d-%02dT12:00:00Z', 1 + i % 12, 1 + i % 28), i % 1000, :record, :log,
       'project-' || (i % 40), i % 5000, i % 777, i % 80000, 0.5
FROM n
"""


def fill(store: HistoryStore, count: int, *, names: int, log_bytes: int = 0) -> None:
    """Put `count` records of one namespace into a store in SQLite."""
    record = msgspec.json.encode(_RECORD).decode()
    with store._engine.begin() as connection:
        connection.execute(
            sql.text(_INSERT), {"count": count, "names": names, "record": record, "log": "l" * log_bytes}
        )
        assert connection.execute(sql.select(sql.func.count()).select_from(JOBS)).scalar_one() == count


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _ask(store: HistoryStore, question: HistoryQuerySpec) -> None:
    started = time.process_time()
    status = answer(store, HistoryQuery(metadata=ObjectMeta(name="q", namespace="team"), spec=question))
    assert not status.message, status.message
    told = f"{len(status.sums)} sums" if question.group_by else f"{len(status.records)} records"
    print(f"{question.group_by or 'records'}: {told} in {time.process_time() - started:.1f} s of CPU time")


def main(count: int, *, log_bytes: int) -> None:
    """Print how long each question takes, and last by how many MiB they and a start make the process grow."""
    with tempfile.TemporaryDirectory() as folder:
        store = HistoryStore(f"sqlite:///{Path(folder)}/history.db")
        store.open()
        fill(store, count, names=20_000, log_bytes=log_bytes)
        before = _peak_mib()
        store.open()
        store.used()
        store.unfinished()
        _ask(store, HistoryQuerySpec())
        for by in ("Nothing", "User", "Name", "Project", "Day"):
            _ask(store, HistoryQuerySpec(group_by=by))
        print(f"{_peak_mib() - before:.1f}")
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), log_bytes=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
