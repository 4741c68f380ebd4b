"""Both databases keep the same promises."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sql

from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail_operator.history_store import HistoryError, HistoryStore
from tests.operator_ import postgres
from tests.operator_.builders import at


def record(number: int = 1, *, ended: float | None = 0.0, **more: Any) -> JobRecord:
    told = {
        "uid": f"uid-{number}", "namespace": "team", "name": f"job-{number}", "number": number, "user": "ada",
        "phase": "Running" if ended is None else "Succeeded", "submitted": at(-100), "gpus": 2.0, "gpuSeconds": 20.0,
        "ended": None if ended is None else at(ended), **more,
    }  # fmt: skip
    return msgspec.convert(told, JobRecord)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres.running() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryStore]:
    url = f"sqlite:///{tmp_path}/deep/history.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql")
    store = HistoryStore(url)
    store.open()
    yield store
    store.forget(before=datetime(2100, 1, 1, tzinfo=UTC))
    store.close()


def names(store: HistoryStore, namespace: str = "team", **question: Any) -> list[str]:
    return [each.name for each in store.find(namespace, HistoryQuerySpec(**question))[0]]


def test_a_record_is_read_as_it_was_written(store: HistoryStore) -> None:
    wanted = record(devices=["GPU-1"], nodes=["a"], message="Worker 0 failed: “no”", log="one\ntwo")
    assert store.write([wanted]) == [wanted]
    assert store.find("team", HistoryQuerySpec(logs=True)) == ([wanted], "")
    assert store.find("team", HistoryQuerySpec())[0][0].log == ""


def test_what_is_final_stays_as_it_is_however_often_it_is_written(store: HistoryStore) -> None:
    store.write([record()])
    assert store.write([record(phase="Failed", gpuSeconds=99.0)]) == []
    assert store.used() == {("team", "ada"): 20.0}
    assert store.final(["uid-1", "uid-2"]) == {"uid-1"}


def test_a_job_that_runs_is_known_and_becomes_final_once(store: HistoryStore) -> None:
    assert store.write([record(ended=None)]) == []
    assert [each.uid for each in store.unfinished()] == ["uid-1"]
    assert (names(store), store.final(["uid-1"]), store.used()) == ([], set(), {})
    assert [each.uid for each in store.write([record()])] == ["uid-1"]
    assert store.unfinished() == []


def test_a_question_narrows_by_namespace_time_user_name_number_and_phase(store: HistoryStore) -> None:
    store.write(
        [
            record(1, ended=0),
            record(2, ended=60, user="bob"),
            record(3, ended=120, phase="Failed"),
            record(4, ended=180, namespace="other"),
        ]
    )
    assert names(store) == ["job-3", "job-2", "job-1"]
    assert names(store, since=at(60)) == ["job-3", "job-2"]
    assert names(store, until=at(60)) == ["job-1"]
    assert names(store, users=["bob"]) == ["job-2"]
    assert names(store, names=["job-1"], numbers=[3]) == ["job-3", "job-1"]
    assert names(store, phases=["Failed"]) == ["job-3"]
    assert names(store, "other") == ["job-4"]
    assert [each.name for each in store.all("team", HistoryQuerySpec(limit=1))] == ["job-1", "job-2", "job-3"]


def test_times_of_other_zones_mean_the_same_moment(store: HistoryStore) -> None:
    store.write([record(ended=0)])
    assert names(store, since="2026-01-01T13:00:00+01:00") == ["job-1"]
    assert names(store, since="2026-01-01T13:00:01+01:00") == []


def test_pages_follow_one_another_without_gap_or_repetition(store: HistoryStore) -> None:
    # Several ends in the same second, as gangs have them.
    store.write([record(number, ended=number // 3) for number in range(1, 11)])
    found: list[str] = []
    after = ""
    while True:
        page, after = store.find("team", HistoryQuerySpec(limit=4, after=after))
        found += [each.name for each in page]
        if not after:
            break
    assert sorted(found) == sorted(f"job-{number}" for number in range(1, 11))
    assert len(found) == 10


def test_old_records_are_forgotten(store: HistoryStore) -> None:
    store.write([record(1, ended=0), record(2, ended=60), record(3, ended=None)])
    assert store.forget(before=datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)) == 1
    assert names(store) == ["job-2"]
    assert len(store.unfinished()) == 1
    store.write([record(3)])


def test_a_log_with_bytes_that_no_text_has_is_kept_without_them(store: HistoryStore) -> None:
    store.write([record(log="a\x00b")])
    assert store.find("team", HistoryQuerySpec(logs=True))[0][0].log == "ab"


def test_another_process_reads_what_is_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    writer, reader = HistoryStore(url), HistoryStore(url)
    for store in (writer, reader):
        store.open()
    writer.write([record()])
    assert names(reader) == ["job-1"]
    writer.close()
    reader.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://u:secret@db/x", "history mysql://u:***@db/x: allowed are sqlite:///FILE and postgresql://…"),
        ("history.db", "history url: Could not parse SQLAlchemy URL"),
        ("postgresql://u:a:b@db:secret/x", "history url: the port is no number: in a password write %40 for @"),
        ("sqlite:///", "history sqlite:///: allowed are sqlite:///FILE and postgresql://…"),
    ],
)
def test_a_url_that_cannot_be_used_is_a_sentence_without_its_password(url: str, sentence: str) -> None:
    with pytest.raises(HistoryError) as refused:
        HistoryStore(url)
    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value)


def test_postgresql_may_be_called_as_libpq_does() -> None:
    store = HistoryStore("postgres://me@db/x")
    assert store.where == "postgresql+psycopg://me@db/x"
    store.close()


def test_a_database_that_is_away_is_a_sentence(tmp_path: Path) -> None:
    store = HistoryStore(f"postgresql://me:secret@/x?host={tmp_path}")
    with pytest.raises(HistoryError, match="history postgresql") as refused:
        store.open()
    assert "secret" not in str(refused.value)
    (tmp_path / "file").write_text("")
    blocked = HistoryStore(f"sqlite:///{tmp_path}/file/history.db")
    with pytest.raises(HistoryError, match="history sqlite"):
        blocked.open()


def test_records_are_found_and_summed_by_project(store: HistoryStore) -> None:
    store.write([record(1, project="vision"), record(2, project="speech"), record(3), record(4, project="vision")])
    assert sorted(names(store, projects=["vision"])) == ["job-1", "job-4"]
    assert sorted(names(store, projects=["vision", "speech"])) == ["job-1", "job-2", "job-4"]
    found = store.all("team", HistoryQuerySpec(projects=["vision"]))
    assert {each.project for each in found} == {"vision"}


def test_a_user_may_have_the_longest_name_of_a_service_account(store: HistoryStore) -> None:
    user = f"system:serviceaccount:{'n' * 63}:{'a' * 253}"
    assert len(store.write([record(user=user)])) == 1
    (found,), _ = store.find("team", HistoryQuerySpec(users=[user]))
    assert found.user == user


def broken(store: HistoryStore, uid: str) -> None:
    """What the store has of a job is none that this version reads."""
    with store._engine.begin() as connection:
        connection.execute(sql.text("UPDATE dovetail_jobs SET record = :no WHERE uid = :uid"), {"no": "{", "uid": uid})


def test_a_record_that_cannot_be_read_hides_no_other(store: HistoryStore) -> None:
    store.write([record(1, ended=-3), record(2, ended=-2), record(3, ended=-1), record(4, ended=None)])
    store.write([record(5, ended=None)])
    broken(store, "uid-2")
    broken(store, "uid-4")
    assert [each.uid for each in store.unfinished()] == ["uid-5"]
    assert [each.name for each in store.all("team", HistoryQuerySpec())] == ["job-1", "job-3"]
    seen, after = store.find("team", HistoryQuerySpec(limit=2))
    assert [each.name for each in seen] == ["job-3"]
    assert names(store, after=after) == ["job-1"]


def test_a_file_that_was_deleted_under_it_is_made_anew(tmp_path: Path) -> None:
    store = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    store.open()
    store.write([record(1)])
    for file in tmp_path.iterdir():
        file.unlink()
    store.write([record(2)])
    store.close()
    again = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    assert names(again) == ["job-2"]
    again.close()


def test_a_network_that_swallows_all_is_noticed_within_a_minute_unless_the_url_says_otherwise(postgresql: str) -> None:
    store = HistoryStore(f"{postgresql}&keepalives_idle=7")
    with store._engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        said = raw.info.get_parameters()
    store.close()
    expected = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "7", "keepalives_count": "3"}
    assert {name: said[name] for name in expected} == expected
