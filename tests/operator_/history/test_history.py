"""Records are written when jobs begin, end and go, once, whatever fails meanwhile; and questions are answered."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.gpujob import GPUJob
from dovetail.api.historyquery import MOST_GROUPS, MOST_LOGS, OTHERS, HistoryQuery, HistoryQuerySpec, JobRecord
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.records import record_of
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail_operator.history import log_tail
from dovetail_operator.history.answers import Answers
from dovetail_operator.history.questions import answer
from dovetail_operator.history.recorder import MOST_SERIES, History, UsedCollector
from dovetail_operator.history.service import HistoryService
from dovetail_operator.history.store import HistoryError, HistoryStore
from dovetail_operator.job.actions import DeleteGPUJob
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api, Stream, line, refusal
from tests.operator_ import history_rows
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state, see
from tests.operator_.history.test_store import record

QUERIES = "/apis/dovetail.dev/v1beta1/namespaces/team/historyqueries"
ENDED: dict[str, Any] = {"phase": "Succeeded", "startTime": at(-60), "completionTime": at(0), "gpus": 1}
FINISHED_WELL = "dovetail_jobs_finished_total", {"phase": "Succeeded"}
RUNS: dict[str, Any] = {"phase": "Running", "startTime": at(-60), "gpus": 2}


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(f"sqlite:///{tmp_path}/history.db")


class Keeping:
    """The history of a state, at work."""

    def __init__(self, client: Client, store: HistoryStore, *jobs: GPUJob) -> None:
        self.dues = Dues()
        self.state: State = make_state(a=1, records=self.dues)
        self.registry = CollectorRegistry()
        self.history = History(
            client,
            state=self.state,
            store=store,
            dues=self.dues,
            keep_days=30,
            registry=self.registry,
            now=lambda: NOW,
            rng=random.Random(7),
            gather_seconds=0.0,
            backoff=Backoff(first_seconds=0.001, longest_seconds=0.001),
        )
        for job in jobs:
            self.state.store.job_changed(job)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with running(self.history.run()):
                yield
        finally:
            self.history.store.close()

    async def until(self, *wanted: str) -> list[JobRecord]:
        """The final records of the namespace, once they are those of the names that are wanted."""
        await self.history.synced.wait()
        async with asyncio.timeout(60):
            while True:
                found, _ = self.history.store.find("team", question=HistoryQuerySpec(logs=True))
                if {each.name for each in found} == set(wanted):
                    return found
                await asyncio.sleep(0.01)


async def test_jobs_that_have_ended_are_recorded_once_also_by_the_next_operator(
    client: Client, store: HistoryStore
) -> None:
    first = Keeping(client, store, make_job(status=ENDED), make_job("waits", status={"phase": "Queued"}))
    async with first.running():
        await first.until("x")
        # It is counted once it is in the store.
        await eventually(lambda: first.registry.get_sample_value(*FINISHED_WELL) == 1)
    again = Keeping(client, store, make_job(status=ENDED))
    async with again.running():
        await again.until("x")
        await eventually(lambda: again.dues.is_kept(make_job()))
    assert again.registry.get_sample_value(*FINISHED_WELL) is None
    used = again.registry.get_sample_value("dovetail_gpu_seconds_total", {"namespace": "team", "user": ""})
    assert used == 60


async def test_an_operator_that_ends_leaves_all_records_in_one_file(
    api: Api, client: Client, store: HistoryStore, tmp_path: Path
) -> None:
    """A copy of history.db alone is a backup: nothing is left in SQLite's write-ahead log."""
    api.answer("GET /apis/dovetail.dev/v1beta1/historyqueries", Answer(body={"metadata": {}, "items": []}))
    keeping = Keeping(client, store, make_job(status=ENDED))
    service = HistoryService(keeping.history, answers=Answers(client, answer=partial(answer, store)), store=store)
    async with running(service.run()):
        await keeping.until("x")
        assert files(tmp_path) > {"history.db"}
    assert files(tmp_path) == {"history.db"}


def test_a_copy_is_complete_while_others_have_the_database_open(store: HistoryStore, tmp_path: Path) -> None:
    store.open()
    other = sqlite3.connect(tmp_path / "history.db")
    other.execute("SELECT count(*) FROM dovetail_jobs").fetchall()
    store.write([record()])
    store.close()
    shutil.copy(tmp_path / "history.db", tmp_path / "copy.db")
    other.close()
    copy = HistoryStore(f"sqlite:///{tmp_path}/copy.db")
    assert len(copy.find("team", question=HistoryQuerySpec())[0]) == 1
    copy.close()


def files(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def test_a_job_that_is_deleted_while_it_runs_was_cancelled_then(client: Client, store: HistoryStore) -> None:
    keeping = Keeping(client, store, make_job(status=RUNS), make_job("waits", status={"phase": "Queued"}))
    async with keeping.running():
        await keeping.history.synced.wait()
        for name in ("x", "waits"):
            keeping.state.store.job_deleted(f"team/{name}", uid=f"uid-{name}")
        found = {each.name: each for each in await keeping.until("x", "waits")}
    assert (found["x"].phase, found["x"].reason, found["x"].gpu_seconds) == ("Cancelled", "Deleted", 120)
    assert (found["waits"].phase, found["waits"].gpu_seconds) == ("Cancelled", 0)


async def test_a_job_that_went_while_no_operator_looked_is_closed_at_the_next_start(
    client: Client, store: HistoryStore
) -> None:
    keeping = Keeping(client, store, make_job(status=RUNS))
    async with keeping.running():
        await keeping.history.synced.wait()
        await eventually(lambda: bool(store.unfinished()))
    after = Keeping(client, store)
    async with after.running():
        (found,) = await after.until("x")
    assert (found.phase, found.reason) == ("Cancelled", "Deleted")
    assert "while no operator looked" in found.message


async def test_a_job_that_was_replaced_under_its_name_while_no_operator_looked_is_closed_too(
    client: Client, store: HistoryStore
) -> None:
    keeping = Keeping(client, store, make_job(status=RUNS))
    async with keeping.running():
        await keeping.history.synced.wait()
        await eventually(lambda: bool(store.unfinished()))
    after = Keeping(client, store, make_job(status=RUNS, meta={"uid": "uid-next"}))
    async with after.running():
        (found,) = await after.until("x")
        await eventually(lambda: [each.uid for each in store.unfinished()] == ["uid-next"])
    assert (found.uid, found.phase) == ("uid-x", "Cancelled")


async def test_records_are_dropped_after_as_many_days_as_are_kept(client: Client, store: HistoryStore) -> None:
    store.open()
    day = 86400
    store.write(
        [
            msgspec.structs.replace(record(age), uid=f"uid-{age}", name=f"d{age}", ended=at(-age * day))
            for age in (29, 31)
        ]
    )
    keeping = Keeping(client, store)
    async with keeping.running():
        await keeping.until("d29")


async def test_where_records_are_far_behind_no_log_is_read_and_of_a_deleted_job_none_either(
    api: Api, client: Client, store: HistoryStore
) -> None:
    """Records take precedence over logs, and a pod of a job that is gone is about to be."""
    store.open()
    job = make_job(status=ENDED)
    keeping = Keeping(client, store, job)
    keeping.state.store.child_changed(make_child(job))
    keeping.state.store.pod_event("ADDED", make_pod(0, phase="Succeeded", node="a"))
    (due,) = keeping.dues.take()
    await keeping.history._records([due._replace(gone=True)])
    for number in range(401):
        keeping.dues.observe(make_job(f"x{number}", status=ENDED))
    await keeping.history._records([due])
    assert api.seen == []
    keeping.dues.take()
    api.answer("GET /api/v1/namespaces/team/pods/x-0-succeeded/log", Answer(body=b"done\n"))
    (found,) = await keeping.history._records([due])
    assert found.log == "done\n"
    store.close()


async def test_a_database_that_is_away_delays_records_and_loses_none(
    client: Client, store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([HistoryError("pg", problem="no route"), HistoryError("pg", problem="no route")])
    write = HistoryStore.write

    def sometimes(self: HistoryStore, records: Any) -> list[JobRecord]:
        for failure in failures:
            raise failure
        return write(self, records)

    monkeypatch.setattr(HistoryStore, "write", sometimes)
    keeping = Keeping(client, store, make_job(status=ENDED))
    async with keeping.running():
        await keeping.until("x")
    assert keeping.registry.get_sample_value("dovetail_history_failures_total") == 2


async def test_a_table_that_went_while_it_was_open_is_made_anew(client: Client, store: HistoryStore) -> None:
    keeping = Keeping(client, store)
    async with keeping.running():
        await keeping.history.synced.wait()
        with store._engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE dovetail_jobs")
        keeping.state.store.job_changed(make_job(status=ENDED))
        await eventually(lambda: keeping.dues.is_kept(make_job()))
        await keeping.until("x")


async def test_the_last_lines_of_the_failed_worker_are_kept(api: Api, client: Client, store: HistoryStore) -> None:
    job = make_job(status=ENDED | {"phase": "Failed"}, workers=2)
    keeping = Keeping(client, store, job)
    keeping.state.store.child_changed(make_child(job))
    meta = {"labels": {"dovetail.dev/job": "x"}}
    keeping.state.store.pod_event("ADDED", make_pod(0, phase="Succeeded", node="a", created=-50))
    keeping.state.store.pod_event("ADDED", make_pod(1, phase="Failed", node="a", created=-40, meta=meta))
    api.answer("GET /api/v1/namespaces/team/pods/x-1-failed/log", Answer(body=b"CUDA out of memory\n"))
    async with keeping.running():
        (found,) = await keeping.until("x")
    assert found.log == "CUDA out of memory\n"
    (seen,) = api.of("GET /api/v1/namespaces/team/pods/x-1-failed/log")
    assert (seen.query["tailLines"], seen.query["limitBytes"]) == ("100", str(log_tail.READ_BYTES))


async def test_of_long_lines_fewer_are_read_so_that_the_end_is_there(
    api: Api, client: Client, store: HistoryStore
) -> None:
    job = make_job(status=ENDED)
    keeping = Keeping(client, store, job)
    keeping.state.store.child_changed(make_child(job))
    keeping.state.store.pod_event("ADDED", make_pod(0, phase="Succeeded", node="a"))
    cut = Answer(body=b"a" * log_tail.READ_BYTES)
    api.answer("GET /api/v1/namespaces/team/pods/x-0-succeeded/log", cut, cut, Answer(body=b"b" * 40_000 + b"end"))
    async with keeping.running():
        (found,) = await keeping.until("x")
    assert (len(found.log), found.log[-4:]) == (log_tail.LIMIT_BYTES, "bend")
    lines = [seen.query["tailLines"] for seen in api.of("GET /api/v1/namespaces/team/pods/x-0-succeeded/log")]
    assert lines == ["100", "10", "1"]


async def test_a_kubelet_that_gives_no_log_does_not_stop_the_record(
    api: Api, client: Client, store: HistoryStore
) -> None:
    job = make_job(status=ENDED)
    keeping = Keeping(client, store, job)
    keeping.state.store.child_changed(make_child(job))
    keeping.state.store.pod_event("ADDED", make_pod(0, phase="Succeeded", node="a"))
    api.answer("GET /api/v1/namespaces/team/pods/x-0-succeeded/log", refusal(500, message="no addresses"))
    async with keeping.running():
        (found,) = await keeping.until("x")
    assert found.log == ""


FAILED: dict[str, Any] = ENDED | {"phase": "Failed", "reason": "BackoffLimitExceeded", "message": "its pod is gone"}
NAMESPACE = "GET /api/v1/namespaces/team"


def namespace(**meta: str) -> Answer:
    return Answer(body={"metadata": {"name": "team", **meta}})


@pytest.mark.parametrize(
    ("answered", "phase"),
    [
        pytest.param(namespace(deletionTimestamp=at(-1)), "Cancelled", id="while its namespace was being deleted"),
        pytest.param(namespace(deletionTimestamp=at(0)), "Cancelled", id="in the second in which that began"),
        pytest.param(refusal(404), "Cancelled", id="and its namespace is gone already"),
        pytest.param(namespace(deletionTimestamp=at(1)), "Failed", id="before its namespace was deleted"),
        pytest.param(namespace(), "Failed", id="in a namespace that stays"),
        pytest.param(refusal(403), "Failed", id="in a namespace that the operator may not look at"),
    ],
)
async def test_a_job_that_failed_is_only_told_as_cancelled_where_its_namespace_went_under_it(
    api: Api, client: Client, store: HistoryStore, answered: Answer, phase: str
) -> None:
    api.answer(NAMESPACE, answered)
    keeping = Keeping(client, store, make_job("x", status=FAILED))
    async with keeping.running():
        (found,) = await keeping.until("x")
    assert found.phase == phase
    assert found.message == (
        "Its namespace was deleted before it had ended" if phase == "Cancelled" else "its pod is gone"
    )
    assert len(api.of(NAMESPACE)) == 1


def test_a_finished_job_is_deleted_by_its_time_to_live_only_when_it_is_recorded() -> None:
    job = make_job(ttlSecondsAfterFinished=1, status={**ENDED, "completionTime": at(-10)})
    seen = see(job)
    assert reconcile(seen).actions == (DeleteGPUJob(),)
    waits = reconcile(replace(seen, recorded=False))
    assert (waits.actions, waits.wake_at) == ((), NOW + timedelta(seconds=1))


def test_an_end_that_is_not_written_yet_stays_due_when_the_object_goes() -> None:
    dues = Dues()
    job = make_job(status=ENDED)
    dues.observe(job)
    (due,) = dues.take()
    dues.drop(job)
    dues.done([due])
    assert [again.gone for again in dues.take()] == [True]


def test_of_an_array_its_tasks_have_records() -> None:
    dues = Dues()
    parent = make_job(array={"indexes": "0-3"}, status=ENDED)
    dues.observe(parent)
    dues.drop(parent)
    assert (len(dues), dues.is_kept(parent)) == (0, True)


def ask(**spec: Any) -> HistoryQuery:
    return HistoryQuery(
        metadata=ObjectMeta(name="q", namespace="team", uid="u", resource_version="5"),
        spec=msgspec.convert(spec, HistoryQuerySpec),
    )


def test_an_answer_fits_an_object_and_the_rest_is_on_the_next_page(store: HistoryStore) -> None:
    store.open()
    many = [f"GPU-{number:036d}" for number in range(64)]
    store.write([record(number, ended=number, devices=many, message="m" * 1000) for number in range(1, 501)])
    found, after = [], ""
    while True:
        status = answer(store, ask(after=after))
        assert len(msgspec.json.encode(status)) < 1_000_000
        found += [each.number for each in status.records]
        if not (after := status.next):
            break
    assert found == list(range(500, 0, -1))
    store.close()


def test_logs_come_for_a_few_records_only(store: HistoryStore) -> None:
    store.open()
    store.write([record(number, log="x" * 30_000) for number in range(1, 31)])
    status = answer(store, ask(logs=True))
    assert (len(status.records), status.next != "") == (MOST_LOGS, True)
    store.close()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"phases": ["Queued"]},
            'phases "Queued": a job that has ended is one of Cancelled, Failed, Succeeded, TimedOut',
        ),
        ({"since": "2026-99-01T00:00:00Z"}, "month must be in 1..12"),
        ({"after": "page2"}, 'after "page2": give what the answer before said in `next`'),
    ],
)
def test_a_question_that_cannot_be_answered_gets_a_sentence(
    store: HistoryStore, spec: dict[str, Any], sentence: str
) -> None:
    store.open()
    status = answer(store, ask(**spec))
    assert (status.answered, status.message) == (True, sentence)
    store.close()


def test_sums_of_20000_names_fit_an_object(store: HistoryStore) -> None:
    store.open()
    history_rows.fill(store, 20_000, names=20_000)
    status = answer(store, ask(groupBy="Name"))
    assert len(msgspec.json.encode(status)) < 1_000_000
    assert (len(status.sums), status.sums[-1].group) == (MOST_GROUPS + 1, OTHERS)
    assert sum(each.jobs for each in status.sums) == 20_000
    store.close()


def test_of_groups_with_names_too_long_for_one_object_fewer_are_told(store: HistoryStore) -> None:
    store.open()
    # A control character takes six bytes as JSON.
    store.write([record(number, user=f"{number:04d}" + "\x02" * 240) for number in range(1, 1001)])
    status = answer(store, ask(groupBy="User"))
    assert len(msgspec.json.encode(status)) < 1_000_000
    assert (len(status.sums), status.sums[-1].group) == (MOST_GROUPS // 2 + 1, OTHERS)
    store.close()


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (refusal(413, message="the request is too large"), True),
        (refusal(422, reason="Invalid", message="status.records: too many"), True),
        (refusal(500, message="etcdserver: request is too large"), True),
        (refusal(403, reason="Forbidden"), False),
    ],
)
async def test_an_answer_that_is_refused_is_given_up_with_a_reason_else_the_question_is_deleted(
    api: Api, client: Client, store: HistoryStore, refused: Answer, told: bool
) -> None:
    store.open()
    question = msgspec.to_builtins(ask())
    everywhere = "/apis/dovetail.dev/v1beta1/historyqueries"
    api.answer(f"GET {everywhere}", Answer(body={"metadata": {"resourceVersion": "5"}, "items": [question]}))
    api.answer(f"PATCH {QUERIES}/q/status", refused, Answer(body=question) if told else refused)
    api.answer(f"DELETE {QUERIES}/q", Answer(body={}))
    async with running(Answers(client, answer=partial(answer, store)).run()):
        await api.until(f"PATCH {QUERIES}/q/status", count=2)
        if not told:
            await api.until(f"DELETE {QUERIES}/q", count=1)
    status = api.of(f"PATCH {QUERIES}/q/status")[1].body["status"]
    assert status["answered"]
    assert status["message"].startswith("the API server does not take the answer: ")
    store.close()


async def test_a_question_that_can_never_be_answered_is_not_tried_for_ever(
    api: Api, client: Client, store: HistoryStore
) -> None:
    store.open()
    question = msgspec.to_builtins(ask())
    everywhere = "/apis/dovetail.dev/v1beta1/historyqueries"
    api.answer(f"GET {everywhere}", Answer(body={"metadata": {"resourceVersion": "5"}, "items": [question]}))
    api.answer(f"PATCH {QUERIES}/q/status", *[refusal(503)] * 4)
    api.answer(f"DELETE {QUERIES}/q", Answer(body={}))
    async with running(Answers(client, answer=partial(answer, store), again_seconds=0.001, most_tries=3).run()):
        await api.until(f"DELETE {QUERIES}/q", count=1)
    assert api.of(f"DELETE {QUERIES}/q")[0].body["preconditions"] == {"uid": question["metadata"]["uid"]}
    assert len(api.of(f"PATCH {QUERIES}/q/status")) == 4
    store.close()


async def test_a_flood_of_questions_in_one_namespace_delays_no_other(
    api: Api, client: Client, store: HistoryStore
) -> None:
    store.open()
    asked = [(f"q{at}", "flood") for at in range(5)] + [("late", "team")]
    items = []
    for name, namespace in asked:
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "5"}
        items.append({"metadata": meta, "spec": {}})
        path = QUERIES.replace("/team/", f"/{namespace}/")
        api.answer(f"PATCH {path}/{name}/status", Answer(body=items[-1]))
    api.answer("GET /apis/dovetail.dev/v1beta1/historyqueries", Answer(body={"metadata": {}, "items": items}))
    async with running(Answers(client, answer=partial(answer, store)).run()):
        await eventually(lambda: sum(seen.method == "PATCH" for seen in api.seen) == len(asked))
    order = [seen.path.split("/")[-2] for seen in api.seen if seen.method == "PATCH"]
    assert order == ["q0", "late", "q1", "q2", "q3", "q4"]
    store.close()


@pytest.mark.parametrize("troubles", [0, 2])
async def test_each_question_is_answered_once_and_deleted_after_a_while(
    api: Api, client: Client, store: HistoryStore, troubles: int
) -> None:
    """Also by an API server that could not take the answer, or the end of the question, at first."""
    store.open()
    store.write([record()])
    everywhere = "/apis/dovetail.dev/v1beta1/historyqueries"
    question = msgspec.to_builtins(ask())
    told = {**question, "status": {"answered": True}, "metadata": {**question["metadata"], "resourceVersion": "6"}}
    api.answer(f"GET {everywhere}", Answer(body={"metadata": {"resourceVersion": "5"}, "items": [question]}))
    api.answer(f"PATCH {QUERIES}/q/status", *[refusal(503)] * troubles, Answer(body=told))
    api.answer(f"WATCH {everywhere}", Stream(chunks=[line("MODIFIED", told)]))
    api.answer(f"DELETE {QUERIES}/q", *[refusal(503)] * troubles, Answer(body={}))
    asked = Answers(client, answer=partial(answer, store), kept_seconds=0.01, again_seconds=0.01)
    task = asyncio.create_task(asked.run())
    await api.until(f"PATCH {QUERIES}/q/status", count=1 + troubles)
    await api.until(f"DELETE {QUERIES}/q", count=1 + troubles)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    *_, patch = api.of(f"PATCH {QUERIES}/q/status")
    assert patch.body["metadata"] == {"uid": "u", "resourceVersion": "5"}
    assert [each["name"] for each in patch.body["status"]["records"]] == ["job-1"]
    store.close()


def test_the_series_of_what_was_used_are_bounded() -> None:
    used = UsedCollector()
    used.start({("team", f"user-{number}"): float(number) for number in range(MOST_SERIES + 10)})
    (family,) = used.collect()
    assert len(family.samples) == MOST_SERIES + 1
    assert family.samples[-1].labels == {"namespace": OTHERS, "user": OTHERS}
    assert family.samples[-1].value == sum(range(10))


async def test_a_job_of_which_no_record_can_be_made_costs_its_own_alone(
    client: Client, store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_on_one(job: GPUJob) -> JobRecord:
        if job.metadata.name == "odd":
            raise RecursionError
        return record_of(job)

    monkeypatch.setattr("dovetail_operator.history.recorder.record_of", fails_on_one)
    keeping = Keeping(client, store, make_job("odd", status=ENDED), make_job(status=ENDED))
    async with keeping.running():
        assert [each.name for each in await keeping.until("x")] == ["x"]
