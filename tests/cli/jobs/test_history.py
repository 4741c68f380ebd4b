"""Questions about what has ended, and how answers are shown."""

import csv
import io
import json
from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.historyquery import HistoryQuerySpec, HistorySums
from dovetail.api.reasons.problems import NO_HISTORY
from dovetail.query.jobs.records import as_job
from dovetail.query.jobs.selection import parse_one
from dovetail.query.jobs.statistics import job_statistics
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import details, history, logs, statistics
from dovetail_cli.jobs.listing import Question
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError
from dovetail_cli.ui.times import since_time
from tests.cli.builders import NOW, ago
from tests.cli.jobs.test_queue import VIEW
from tests.core.kube.api import Answer, Api
from tests.core.query.jobs.test_records import record

QUERIES = "/apis/dovetail.dev/v1beta1/namespaces/default/historyqueries"


def asked(**status: Any) -> Answer:
    return Answer(body={"metadata": {"name": "ask-1", "namespace": "default"}, "spec": {}, "status": status})


def script(api: Api, *answers: Answer) -> None:
    """Each question gets the next answer, and is deleted."""
    for answer in answers:
        api.answer(f"POST {QUERIES}", asked())
        api.answer(f"GET {QUERIES}/ask-1", asked(), answer)
        api.answer(f"DELETE {QUERIES}/ask-1", Answer(body={}))


async def test_all_pages_are_read_and_every_question_is_deleted(api: Api, cluster: Cluster) -> None:
    pages = [[record(2)], [record(1)]]
    first, second = (values_of(page) for page in pages)
    script(api, asked(answered=True, records=first, next="2026 uid-2"), asked(answered=True, records=second))
    assert await history.records(cluster, question=HistoryQuerySpec(since=ago(days=1))) == [record(2), record(1)]
    specs = [seen.body["spec"] for seen in api.of(f"POST {QUERIES}")]
    assert [(spec["since"], spec.get("after")) for spec in specs] == [
        (ago(days=1), None),
        (ago(days=1), "2026 uid-2"),
    ]
    assert len(api.of(f"DELETE {QUERIES}/ask-1")) == 2


async def test_what_is_wrong_with_a_question_is_the_commands_error(api: Api, cluster: Cluster) -> None:
    script(api, asked(answered=True, message="history sqlite: disk I/O error"))
    with pytest.raises(CommandError, match="disk I/O error"):
        await history.ask(cluster, question=HistoryQuerySpec())


async def test_where_nobody_answers_that_is_said(api: Api, cluster: Cluster) -> None:
    script(api, asked(), *[asked()] * 30)
    with pytest.raises(CommandError, match=r"no operator has answered within 0\.01 s"):
        await history.ask(cluster, question=HistoryQuerySpec(), seconds=0.01)
    assert api.of(f"DELETE {QUERIES}/ask-1")


SAID = NO_HISTORY().message


def not_kept(api: Api) -> None:
    """The operator's answer where no history is kept; there is no GPUJob."""
    script(api, asked(answered=True, message=SAID, details=msgspec.to_builtins(NO_HISTORY().listed)))
    api.answer(f"GET {QUERIES.replace('historyqueries', 'gpujobs')}", Answer(body={"metadata": {}, "items": []}))


async def test_without_a_history_lists_and_sums_say_so(api: Api, cluster: Cluster) -> None:
    not_kept(api)
    with pytest.raises(history.NoHistoryError) as said:
        await history.records(cluster, question=HistoryQuerySpec(since=ago(days=1)))
    assert (str(said.value), said.value.exit_code) == (SAID, 1)


async def test_without_a_history_a_job_that_is_gone_is_missing_and_both_are_said(api: Api, cluster: Cluster) -> None:
    not_kept(api)
    wanted = parse_one("17", field="JOB")
    with pytest.raises(MissingError) as missing:
        await details.find(cluster, wanted=wanted)
    with pytest.raises(MissingError) as said:
        await details.remembered_or(missing.value, cluster=cluster, wanted=wanted)
    assert str(said.value) == f"no job 17, and {SAID}"


async def test_without_a_history_the_log_of_a_job_whose_workers_are_gone_is_missing(api: Api, cluster: Cluster) -> None:
    not_kept(api)
    with pytest.raises(CommandError) as said:
        await logs._record_of_ended(cluster, wanted=parse_one("17", field="JOB"))
    assert str(said.value) == f"job 17 has ended and its workers are gone, and {SAID}"


def test_a_record_reads_like_the_job_that_it_was() -> None:
    question = Question(since=ago(hours=1), fields=("JOBID", "NAME", "ST", "TIME", "NODES", "NODELIST", "GPUS"))
    assert question.answer([as_job(record())], view=VIEW, form="csv").splitlines()[1] == "1,job-1,CD,00:10:00,1,a,0.5"


@pytest.mark.parametrize(
    ("run_seconds", "time", "earlier"),
    [(60, "00:01:00", None), (600, "00:10:00", None), (660, "00:10:00", "00:01:00")],
    ids=["suspended long before its end", "one run", "one before"],
)
def test_the_time_of_a_job_that_is_gone_is_that_of_its_last_run_as_of_one_that_is_there(
    run_seconds: int, time: str, earlier: str | None
) -> None:
    found = record(runSeconds=run_seconds)
    question = Question(since=ago(hours=1), fields=("TIME",))
    assert question.answer([as_job(found)], view=VIEW, form="csv").splitlines()[1:] == [time]
    times = dict(dict(details.recorded_sections(found))["Times"])
    assert (times["RunTime"], times["EarlierRunTime"]) == (time, earlier)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1d", "2026-11-20T12:00:00Z"),
        ("1.5h", "2026-11-21T10:30:00Z"),
        ("2026-11-01", "2026-11-01T00:00:00Z"),
        ("11:00", "2026-11-21T11:00:00Z"),
        ("13:00", "2026-11-20T13:00:00Z"),
        ("999999999d", "1970-01-01T00:00:00Z"),
        ("9" * 400 + "d", "1970-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+14:00", "1970-01-01T00:00:00Z"),
    ],
)
def test_since_takes_spans_dates_and_times_of_the_clock(text: str, time: str) -> None:
    assert since_time(text, now=NOW, option="--since") == time


@pytest.mark.parametrize("text", ["", "7", "yesterday", "2027-01-01", "-1d"])
def test_a_since_that_is_no_time_that_has_passed_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f'--since "{text}": write a span such as 1d'):
        since_time(text, now=NOW, option="--since")


SUMS = job_statistics(
    HistorySums(
        group="ada",
        jobs=4,
        by_phase={"Failed": 1, "Succeeded": 3},
        gpu_seconds=7200,
        run_seconds=3600,
        mean_wait_seconds=90,
        median_wait_seconds=5,
        p95_wait_seconds=400,
        peak_mib=1024,
    )
)


def question(by: str | None = None) -> HistoryQuerySpec:
    return statistics.question(since=ago(days=1), users={"ada"}, names=set(), by=by)


def test_all_jobs_together_are_told_line_by_line() -> None:
    assert statistics.render([SUMS], asked=question(), form="table") == (
        "Jobs:            4 (1 Failed, 3 Succeeded)\n"
        "Success rate:    75 %\n"
        "GPU hours:       2.00\n"
        "Wait:            mean 90 s, median 5.0 s, 95 % within 6m40s\n"
        "Run time:        mean 15m00s, in all 1.00 h\n"
        "GPU utilization: -\n"
        "Peak memory:     1024 MiB"
    )


def test_groups_are_a_table() -> None:
    head, line = statistics.render([SUMS], asked=question("User"), form="table").splitlines()
    assert head.split() == ["USER", *statistics.COLUMNS]
    assert line.split()[:3] == ["ada", "4", "75"]


def test_nothing_is_an_empty_list_for_programs_and_a_sentence_for_people() -> None:
    assert statistics.render([], asked=question(), form="json") == "[]"
    assert statistics.render([], asked=question(), form="csv").startswith("group,jobs,")
    assert statistics.render([], asked=question(), form="table") == (
        "No job has ended in that time: `gstats --since 90d` looks further back."
    )


def test_programs_get_numbers() -> None:
    (told,) = json.loads(statistics.render([SUMS], asked=question("day"), form="json"))
    assert (told["gpuHours"], told["successRate"], told["meanUtilization"]) == (2.0, 0.75, None)


def test_csv_has_the_numbers_of_json() -> None:
    (row,) = csv.DictReader(io.StringIO(statistics.render([SUMS], asked=question("user"), form="csv")))
    told = msgspec.to_builtins(SUMS)
    assert {key for key in told if key not in row} == {"byPhase"}
    assert row == {key: "" if told[key] is None else str(told[key]) for key in row}


def test_an_unknown_group_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match='--by "team": allowed are user, name, project, day'):
        question("team")


def test_each_option_of_gstats_is_its_own_field_of_the_question() -> None:
    found = statistics.question(since="2026-11-01T00:00:00Z", users={"u"}, names={"n"}, projects={"p"}, by="user")
    assert (found.since, found.users, found.names, found.projects, found.group_by) == (
        "2026-11-01T00:00:00Z", ["u"], ["n"], ["p"], "User",
    )  # fmt: skip
