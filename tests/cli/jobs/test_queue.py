import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, QueuePlace, template_of
from dovetail.api.meta import Condition
from dovetail.query.errors import NotFoundError
from dovetail.query.jobs import selection
from dovetail.query.jobs.columns import COLUMNS, View, parse_fields
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import job_rows, listing
from dovetail_cli.jobs.listing import Question
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import NOW, ago, make_gpunode, make_job
from tests.cli.ui.test_live_screen import KUBECONFIG
from tests.core.kube.api import Answer, Api, refusal
from tests.core.query.jobs.test_records import record

VIEW = View(now=NOW)
JOBS = [
    make_job("done", number=1, phase="Succeeded", gpus=1, request="1", devices=[("a", 0)],
             start_time=ago(minutes=10), completion_time=ago(minutes=8)),
    make_job("broken", number=2, phase="Failed", gpus=1, reason="BackoffLimitExceeded", message="it failed 1 time"),
    make_job("run", number=3, phase="Running", gpus=3, request="3", priority=20, start_time=ago(hours=1),
             nodes=["a", "b"], node_list="a,b", devices=[("b", 3), ("a", 1), ("a", 0)]),
    make_job("host", number=4, phase="Running", request="cpu", nodes=["c"], start_time=ago(seconds=5)),
    make_job("wait", number=5, phase="Queued", gpus=4, request="4", reason="Resources",
             message="Need 4 GPUs, only 1 available"),
    make_job("held", number=6, phase="Held", gpus=1, reason="Held"),
    make_job("new"),
]  # fmt: skip


def ask(form: str = "table", *, view: View = VIEW, **question: Any) -> str:
    return Question(**question).answer(JOBS, view=view, form=form)


def test_what_waits_or_runs_is_listed_by_default() -> None:
    assert ask() == (
        "JOBID  NAME  ST  TIME      NODES  NODELIST(REASON)                            USER  GPUS\n"
        "3      run   R   01:00:00  3      a:0,1 b:3                                   -     3\n"
        "4      host  R   00:00:05  0      c                                           -     cpu\n"
        "5      wait  PD  00:00:00  4      (Resources: Need 4 GPUs, only 1 available)  -     4\n"
        "6      held  H   00:00:00  1      (Held)                                      -     1\n"
        "-      new   PD  00:00:00  0      (Evaluating: no operator has seen it yet)   -     1"
    )


def test_the_time_of_a_suspended_job_stands_still() -> None:
    held = Condition(type="Suspended", status="True", reason="", message="", last_transition_time=ago(minutes=50))
    job = make_job(phase="Suspended", start_time=ago(hours=1), conditions=[held])
    assert job_rows.row(job, fields=["TIME"], view=VIEW) == {"TIME": "00:10:00"}


def test_finished_jobs_come_with_all() -> None:
    lines = ask(everything=True).splitlines()
    assert lines[1:3] == [
        "1      done    CD  00:02:00  1      a:0                                         -     1",
        "2      broken  F   00:00:00  1      (BackoffLimitExceeded: it failed 1 time)    -     1",
    ]


def test_the_node_is_left_out_where_there_is_one() -> None:
    text = Question(fields=("NODELIST",), ids=selection.parse_ids(["1"], field="-j")).answer(
        JOBS, view=View(now=NOW, one_node=True), form="csv"
    )
    assert text == "NODELIST\n0"


def test_a_job_that_is_asked_for_must_exist() -> None:
    with pytest.raises(NotFoundError, match="no jobs 77, nobody"):
        ask(ids=selection.parse_ids(["77,nobody"], field="-j"))


def test_every_column_can_be_asked_for_and_sorted_by() -> None:
    text = ask(fields=parse_fields(",".join(COLUMNS).lower()), everything=True)
    heads = ["NODELIST(REASON)" if column == "NODELIST" else column for column in COLUMNS]
    assert text.splitlines()[0].split() == heads


def test_json_has_numbers_and_full_devices() -> None:
    (job,) = json.loads(ask("json", ids=selection.parse_ids(["3"], field="-j")))
    assert (job["number"], job["phase"], job["gpus"]) == (3, "Running", 3)
    assert job["devices"][0] == {
        "worker": 0, "node": "b", "index": 3, "uuid": "GPU-b-3", "shareMilli": 1000, "memoryMiB": 1024,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parse", "problem"),
    [
        (lambda: listing.parse_limit("0"), '-n "0"'),
        (lambda: listing.parse_limit("x"), '-n "x"'),
        (lambda: listing.check_interval(0.0, form="table"), "--interval 0: at least 0.1 seconds"),
        (lambda: listing.check_interval(2.0, form="json"), "it cannot be combined with -o json"),
    ],
)
def test_wrong_words_are_refused_with_what_is_allowed(parse: Any, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse()
    assert problem in str(refused.value)


@pytest.mark.parametrize(("text", "limit"), [(None, None), ("5", 5), ("+5", 5), ("-5", -5)])
def test_a_limit_takes_the_first_or_the_last(text: str | None, limit: int | None) -> None:
    assert listing.parse_limit(text) == limit


def with_containers(*containers: dict[str, Any]) -> GPUJob:
    job = make_job()
    spec = msgspec.structs.replace(job.spec, template=template_of({"containers": containers}))
    return msgspec.structs.replace(job, spec=spec)


def test_the_memory_column_adds_up_what_a_worker_asks_of_its_host() -> None:
    job = with_containers(
        {"name": "a", "resources": {"requests": {"memory": "1536Mi"}}},
        {"name": "b", "resources": {"requests": {"memory": "512Mi"}}},
    )
    assert job_rows.row(job, fields=["MEMORY"], view=VIEW) == {"MEMORY": "2G"}


def test_a_template_that_is_no_pod_has_no_memory() -> None:
    job = with_containers({"name": "a", "resources": {"requests": {"memory": "lots"}}})
    assert job_rows.row(job, fields=["MEMORY"], view=VIEW) == {"MEMORY": "0"}


def test_a_job_that_waits_shows_its_place_and_when_it_is_to_start() -> None:
    place = QueuePlace(position=3, estimated_start=ago(hours=-2), basis="1 job has ended by then")
    waits, runs = make_job(queue=place, phase="Queued"), make_job(phase="Running")
    fields = ["POSITION", "ETA"]
    assert job_rows.row(waits, fields=fields, view=VIEW) == {"POSITION": 3, "ETA": ago(hours=-2)}
    assert job_rows.row(runs, fields=fields, view=VIEW) == {"POSITION": "-", "ETA": "-"}


@pytest.mark.parametrize(("devices", "expected"), [((2, 2), 2), ((2, 0), 1), ((0, 0), 0)])
async def test_a_node_without_devices_is_no_gpu_node(
    api: Api, cluster: Cluster, devices: tuple[int, ...], expected: int
) -> None:
    items = [values_of(make_gpunode(f"n-{at}", gpus=gpus)) for at, gpus in enumerate(devices)]
    body = {"metadata": {"resourceVersion": "1"}, "items": items}
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", Answer(body=body))
    assert await listing._gpu_nodes(cluster) == expected


@pytest.mark.parametrize(
    ("text", "number"), [(None, None), ("5", 5), ("+5", 5), ("-5", -5), ("0", None), ("five", None), ("1.5", None)]
)
def test_a_limit_is_a_whole_number_of_the_first_or_last(text: str | None, number: int | None) -> None:
    if text is None or number is not None:
        assert listing.parse_limit(text) == number
    else:
        with pytest.raises(UsageError, match=f'-n "{text}": write a whole number'):
            listing.parse_limit(text)


@pytest.mark.parametrize(
    ("text", "users"),
    [(None, set()), ("all", set()), ("ada,all", set()), ("ada, bob,", {"ada", "bob"}), ("", set()), ("ball", {"ball"})],
)
def test_users_are_names_and_all_is_everyone(text: str | None, users: set[str]) -> None:
    assert listing.parse_users(text) == users


@pytest.mark.parametrize(
    ("seconds", "form", "problem"),
    [(0.1, "table", ""), (0.09, "table", "--interval 0.09: at least 0.1 seconds"), (5, "json", "-w refreshes a table")],
)
def test_a_table_that_is_refreshed_has_time_to_be_read(seconds: float, form: str, problem: str) -> None:
    if problem:
        with pytest.raises(UsageError, match=problem):
            listing.check_interval(seconds, form=form)
    else:
        assert listing.check_interval(seconds, form=form) == seconds


GPUNODES = "GET /apis/dovetail.dev/v1beta1/gpunodes"


@pytest.mark.parametrize(
    ("answer", "one_node"),
    [
        (Answer(body={"metadata": {}, "items": [values_of(make_gpunode("a"))]}), True),
        (Answer(body={"metadata": {}, "items": [values_of(make_gpunode(name)) for name in "ab"]}), False),
        (
            Answer(
                body={"metadata": {}, "items": [values_of(make_gpunode("a")), values_of(make_gpunode("b", gpus=0))]}
            ),
            True,
        ),
        (refusal(403), False),
        (refusal(404), False),
    ],
)
async def test_a_node_is_left_out_where_it_is_the_only_one_with_gpus(
    api: Api, cluster: Cluster, answer: Answer, one_node: bool
) -> None:
    api.answer("GET /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs", Answer(body={"metadata": {}, "items": []}))
    api.answer(GPUNODES, answer)
    _, view = await listing._look(cluster)
    assert view.one_node is one_node


@pytest.mark.parametrize(("mebibytes", "text"), [(0, "0"), (512, "512M"), (1024, "1G"), (1536, "1536M"), (2048, "2G")])
def test_memory_is_in_the_largest_whole_unit(mebibytes: int, text: str) -> None:
    assert job_rows._memory(mebibytes) == text


async def test_jobs_that_are_gone_come_from_the_history_and_are_listed_once(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
    queries = jobs.replace("gpujobs", "historyqueries")
    there = values_of(make_job("job-2", number=2, phase="Succeeded", completion_time=ago(minutes=1)))
    there["metadata"]["uid"] = "uid-2"
    api.answer(f"GET {jobs}", Answer(body={"metadata": {}, "items": [there]}))
    api.answer(GPUNODES, Answer(body={"metadata": {}, "items": []}))
    gone = [values_of(record(1)), values_of(record(2, uid="uid-2"))]
    asked = {"metadata": {"name": "ask-1", "namespace": "default"}, "spec": {}}
    api.answer(f"POST {queries}", Answer(body={**asked, "status": {}}))
    api.answer(f"GET {queries}/ask-1", Answer(body={**asked, "status": {"answered": True, "records": gone}}))
    api.answer(f"DELETE {queries}/ask-1", Answer(body={}))
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(url=api.url))
    question = Question(fields=("NAME",), everything=True, since="2020-01-01T00:00:00Z")
    await asyncio.to_thread(
        listing.show, question, form="csv", again_seconds=None, kubeconfig=str(tmp_path / "kubeconfig"),
        context=None, namespace=None,
    )  # fmt: skip
    assert capsys.readouterr().out == "NAME\njob-1\njob-2\n"
    assert api.of(f"POST {queries}")[0].body["spec"]["since"] == "2020-01-01T00:00:00Z"


def test_the_number_and_the_name_of_a_job_lead_to_its_page_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing.output, "in_colour", lambda: True)
    page_of = {"run": "http://gpu/console/job/default/run"}
    text = Question(fields=("JOBID", "NAME")).answer(
        JOBS, view=VIEW, form="table", page_of=lambda job: page_of.get(job.metadata.name)
    )
    assert text.count("\x1b]8;;http://gpu/console/job/default/run\x1b\\") == 2
    assert text.count("\x1b]8;;\x1b\\") == 2
