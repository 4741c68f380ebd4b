"""Both databases keep the same promises."""

import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sql

from dovetail.api.historyquery import OTHERS, Grouping, HistoryQuerySpec, HistorySums, JobRecord
from dovetail.process import database_url
from dovetail_operator.history.store import HistoryError, HistoryStore
from tests.operator_ import history_model
from tests.operator_.builders import at


def record(number: int = 1, *, ended: float | None = 0.0, **more: Any) -> JobRecord:
    told = {
        "uid": f"uid-{number}", "namespace": "team", "name": f"job-{number}", "number": number, "user": "ada",
        "phase": "Running" if ended is None else "Succeeded", "submitted": at(-100), "gpus": 2.0, "gpuSeconds": 20.0,
        "ended": None if ended is None else at(ended), **more,
    }  # fmt: skip
    return msgspec.convert(told, JobRecord)


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
    return [each.name for each in store.find(namespace, question=HistoryQuerySpec(**question))[0]]


def test_a_record_is_read_as_it_was_written(store: HistoryStore) -> None:
    wanted = record(devices=["GPU-1"], nodes=["a"], message="Worker 0 failed: “no”", log="one\ntwo")
    assert store.write([wanted]) == [wanted]
    assert store.find("team", question=HistoryQuerySpec(logs=True)) == ([wanted], "")
    assert store.find("team", question=HistoryQuerySpec())[0][0].log == ""


def test_what_is_final_stays_as_it_is_however_often_it_is_written(store: HistoryStore) -> None:
    store.write([record()])
    assert store.write([record(phase="Failed", gpuSeconds=99.0)]) == []
    assert store.used() == {("team", "ada"): 20.0}
    assert store.final(["uid-1", "uid-2"]) == {"uid-1"}


@pytest.mark.parametrize("chunk", [1, 2, 5, 7])
def test_of_any_number_of_jobs_those_that_are_final_are_known(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("dovetail_operator.history.store._CHUNK", chunk)
    store.write([record(number, ended=0.0 if number % 3 else None) for number in range(1, 8)])
    asked = [f"uid-{number}" for number in range(1, 10)]
    assert store.final(asked) == {"uid-1", "uid-2", "uid-4", "uid-5", "uid-7"}
    store.write([record(3), record(6)])


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
    assert [each.jobs for each in store.sums("team", question=HistoryQuerySpec(limit=1))] == [3]


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
        page, after = store.find("team", question=HistoryQuerySpec(limit=4, after=after))
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
    assert store.find("team", question=HistoryQuerySpec(logs=True))[0][0].log == "ab"


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
    found = store.sums("team", question=HistoryQuerySpec(projects=["vision"], group_by="Project"))
    assert [(each.group, each.jobs) for each in found] == [("vision", 2)]


def test_a_user_may_have_the_longest_name_of_a_service_account(store: HistoryStore) -> None:
    user = f"system:serviceaccount:{'n' * 63}:{'a' * 253}"
    assert len(store.write([record(user=user)])) == 1
    (found,), _ = store.find("team", question=HistoryQuerySpec(users=[user]))
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
    seen, after = store.find("team", question=HistoryQuerySpec(limit=2))
    assert [each.name for each in seen] == ["job-3"]
    assert names(store, after=after) == ["job-1"]


@pytest.mark.parametrize("by", ["Nothing", "User", "Name", "Project", "Day"])
def test_the_database_adds_up_as_plain_python_does(store: HistoryStore, by: Grouping) -> None:
    rng = random.Random(f"records by {by}")
    records = [drawn(number, rng=rng) for number in range(1, 301)]
    store.write(records)
    for question in ({}, {"users": ["ada"]}, {"since": at(86_400)}, {"users": ["nobody"]}):
        asked = HistoryQuerySpec(**question, group_by=by)
        meant = [each for each in records if meets(each, question)]
        assert_alike(store.sums("team", question=asked), history_model.summed(meant, by=by))


def drawn(number: int, *, rng: random.Random) -> JobRecord:
    """A record as chance has it: of few users, names and days, with and without waits and measurements."""
    return record(
        number,
        ended=rng.randrange(4 * 86_400),
        user=rng.choice(["ada", "bob", "", "u" * 300]),
        name=rng.choice("abc"),
        project=rng.choice(["", "vision"]),
        phase=rng.choice(["Succeeded", "Failed", "TimedOut"]),
        gpuSeconds=rng.choice([0.0, rng.random() * 1e6]),
        runSeconds=rng.random() * 1e5,
        waitSeconds=rng.choice([None, 0.0, rng.random() * 1e4]),
        peakMiB=rng.randrange(80_000),
        meanUtilization=rng.choice([None, rng.random()]),
    )


def meets(each: JobRecord, question: dict[str, Any]) -> bool:
    by_user = "users" not in question or each.user in question["users"]
    return by_user and ("since" not in question or (each.ended or "") >= question["since"])


def assert_alike(found: list[HistorySums], expected: list[HistorySums]) -> None:
    assert [each.group for each in found] == [each.group for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.by_phase == other.by_phase
        numbers = [{**msgspec.to_builtins(each), "byPhase": None} for each in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1])


def test_waits_are_summed_up_over_those_that_ran(store: HistoryStore) -> None:
    store.write([*(record(each, waitSeconds=each) for each in range(1, 101)), record(101)])
    (found,) = store.sums("team", question=HistoryQuerySpec(group_by="Nothing"))
    assert (found.mean_wait_seconds, found.median_wait_seconds, found.p95_wait_seconds) == (50.5, 50.5, 95)


def test_beyond_the_largest_groups_all_others_are_one_that_comes_last(store: HistoryStore) -> None:
    store.write([record(number, name=f"n-{number}", gpuSeconds=float(number)) for number in range(1, 8)])
    # Of equals the first by name has a row of its own.
    store.write([record(8, name="n-0", gpuSeconds=5.0, phase="Failed", waitSeconds=3.0)])
    found = store.sums("team", question=HistoryQuerySpec(group_by="Name"), most=3)
    assert [(each.group, each.jobs, each.gpu_seconds) for each in found] == [
        ("n-7", 1, 7.0),
        ("n-6", 1, 6.0),
        ("n-0", 1, 5.0),
        (OTHERS, 5, 15.0),
    ]
    assert (found[2].by_phase, found[3].by_phase) == ({"Failed": 1}, {"Succeeded": 5})


def test_sums_read_no_record_and_no_log(tmp_path: Path) -> None:
    store = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    store.open()
    statements: list[tuple[str, object]] = []
    sql.event.listen(store._engine, "before_cursor_execute", lambda *args: statements.append((args[2], args[3])))
    for by in ("Nothing", "User", "Name", "Project", "Day"):
        store.sums("team", question=HistoryQuerySpec(group_by=by, since=at(0), users=["ada"], projects=["vision"]))
    with store._engine.connect() as connection:
        for statement, values in [each for each in statements if "SELECT" in each[0]]:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            reads = [row.detail for row in plan if "dovetail_jobs" in row.detail]
            assert reads
            assert all("USING COVERING INDEX dovetail_jobs_for_sums" in each for each in reads)
    store.close()


def test_a_table_of_another_version_is_left_as_it_is_with_the_line_to_type(tmp_path: Path) -> None:
    before = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    before.open()
    before.write([record(1)])
    with before._engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE dovetail_jobs ADD COLUMN whole_user TEXT"))
    before.close()
    store = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    with pytest.raises(HistoryError, match="is of another version of Dovetail") as refused:
        store.open()
    line = str(refused.value).partition("Set it aside: ")[2]
    with store._engine.begin() as connection:
        assert connection.execute(sql.text("SELECT count(*) FROM dovetail_jobs")).scalar_one() == 1
        for statement in line.split(";"):
            connection.execute(sql.text(statement))
    store.open()
    store.write([record(2)])
    assert names(store) == ["job-2"]
    store.close()


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


def test_what_questions_cost_does_not_grow_with_the_number_of_records() -> None:
    """A million records may cost 200 MiB; by Python objects they would cost two thousand, and these here 90."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.operator_.history_rows", "50000"],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    assert float(done.stdout.splitlines()[-1]) < 40


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:geheim@db/x", "postgresql+psycopg://u:***@db/x"),
        (
            "postgresql://u@db/x?password=geheim&sslmode=require",
            "postgresql+psycopg://u@db/x?password=***&sslmode=require",
        ),
        ("postgresql://u@db/x?pass%77ord=geheim", "postgresql+psycopg://u@db/x?password=***"),
        ("postgresql://u@db/x?sslpassword=geheim", "postgresql+psycopg://u@db/x?sslpassword=***"),
        ("postgresql://u@db/x?dbname=user%3Dme+password%3Dgeheim", "postgresql+psycopg://u@db/x?dbname=***"),
    ],
)
def test_no_password_of_a_url_is_shown(url: str, shown: str) -> None:
    parsed = database_url.parse(url)
    assert database_url.shown(parsed) == shown
    problem = " ".join(each for each in (parsed.password, *parsed.query.values()) if each)
    assert "geheim" not in database_url.without_secrets(problem, url=parsed)


@pytest.mark.parametrize(
    ("url", "sslmode"),
    [
        ("postgresql://u:p@db.example.org/x", "require"),
        ("postgresql://u:p@10.0.0.7/x", "require"),
        ("postgresql:///x?host=db.example.org", "require"),
        ("postgresql://localhost/x?hostaddr=10.0.0.7", "require"),
        ("postgresql:///x?host=/run/postgresql,db.example.org", "require"),
        ("postgresql://localhost.example.org/x", "require"),
        ("postgresql://db/x?sslmode=verify-full", None),
        ("postgresql://db/x?sslmode=disable", None),
        ("postgresql://db/x?service=history", None),
        ("postgresql:///x", None),
        ("postgresql:///x?host=/run/postgresql", None),
        ("postgresql://127.0.0.1:5432/x", None),
        ("postgresql://[::1]/x", None),
        ("postgresql://localhost/x", None),
    ],
)
def test_over_a_network_postgresql_is_reached_by_tls_unless_the_url_says_otherwise(url: str, sslmode: str) -> None:
    assert database_url.connect_args(database_url.parse(url)).get("sslmode") == sslmode


@pytest.mark.parametrize("change", ["DROP COLUMN log", "ADD COLUMN priority INTEGER", "RENAME COLUMN user TO owner"])
def test_a_table_of_another_version_is_left_as_it_is(tmp_path: Path, change: str) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    store = HistoryStore(url)
    store.open()
    store.close()
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sql.text("DROP INDEX dovetail_jobs_for_sums"))
        connection.execute(sql.text(f"ALTER TABLE dovetail_jobs {change}"))
    with pytest.raises(HistoryError, match="of another version of Dovetail"):
        HistoryStore(url).open()
    engine.dispose()
