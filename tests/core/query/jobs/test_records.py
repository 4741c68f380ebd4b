"""Records of jobs whose objects are gone, and sums over them."""

from typing import Any

import msgspec
import pytest

from dovetail.answers.jobs import job_row
from dovetail.api.historyquery import HistorySums, JobRecord
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.runs import run_seconds as seconds_of_run
from dovetail.query.jobs.places import place_or_reason
from dovetail.query.jobs.records import as_job, joined, last_run_seconds
from dovetail.query.jobs.statistics import job_statistics
from tests.cli.builders import NOW, ago, make_job


def record(number: int = 1, **more: Any) -> JobRecord:
    fields = {
        "uid": f"uid-{number}", "namespace": "default", "name": f"job-{number}", "number": number, "user": "ada",
        "phase": "Succeeded", "gpus": 0.5, "request": "0.5", "nodes": ["a"], "submitted": ago(hours=2),
        "started": ago(hours=1), "ended": ago(minutes=50), "runSeconds": 600, **more,
    }  # fmt: skip
    return msgspec.convert(fields, JobRecord)


def test_a_job_whose_object_exists_is_not_listed_twice() -> None:
    there = make_job("job-2", number=2, phase="Running")
    there = msgspec.structs.replace(there, metadata=ObjectMeta(name="job-2", uid="uid-2"))
    found = joined([there], records=[record(2), record(1)])
    assert [(job.metadata.name, job.status.phase) for job in found] == [("job-1", "Succeeded"), ("job-2", "Running")]


def test_an_earlier_job_of_a_name_is_listed_beside_the_one_that_exists() -> None:
    there = make_job("job-1", number=2, phase="Running")
    there = msgspec.structs.replace(there, metadata=ObjectMeta(name="job-1", namespace="default", uid="uid-later"))
    found = joined([there], records=[record(1)])
    assert [(job.metadata.uid, job.status.phase) for job in found] == [("uid-1", "Succeeded"), ("uid-later", "Running")]


def test_a_record_is_a_row_like_the_job_that_it_was() -> None:
    job = as_job(record(project="vision"))
    row = job_row(job)
    assert (row.number, row.name, row.phase, row.gpus, place_or_reason(job)) == (1, "job-1", "Succeeded", 1, "a")
    assert (row.request, row.user, row.project) == ("0.5", "ada", "vision")


@pytest.mark.parametrize(
    ("run_seconds", "last_seconds"),
    [(60, 60), (600, 600), (660, 600)],
    ids=["suspended long before its end", "one run", "one earlier run"],
)
def test_the_run_time_of_a_record_is_that_of_its_last_run(run_seconds: int, last_seconds: int) -> None:
    found = record(runSeconds=run_seconds)
    assert last_run_seconds(found) == last_seconds
    assert seconds_of_run(as_job(found).status, now=NOW) == last_seconds


def test_statistics_are_rates_and_hours() -> None:
    sums = HistorySums(
        group="ada", jobs=4, by_phase={"Failed": 1, "Succeeded": 3}, gpu_seconds=7200, run_seconds=3600, peak_mib=1024
    )
    found = job_statistics(sums)
    assert (found.success_rate, found.gpu_hours, found.run_hours, found.mean_run_seconds) == (0.75, 2.0, 1.0, 900)
    assert (found.mean_wait_seconds, found.mean_utilization, found.peak_memory_mib) == (None, None, 1024)
