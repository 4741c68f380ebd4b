"""The columns of job lists: values, order, names."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, QueuePlace, template_of
from dovetail.query.errors import InvalidQueryError
from dovetail.query.jobs.columns import COLUMNS, View, parse_fields, parse_sort, sort_jobs
from tests.cli.builders import NOW, ago, make_job

VIEW = View(now=NOW)


def value(job: GPUJob, field: str, *, view: View = VIEW) -> Any:
    return COLUMNS[field](job, view)


def test_jobs_are_ordered_by_the_number_of_gpus_that_they_request() -> None:
    texts = ("16", "2(V100)", "cpu", "2x8G,0.5(T4)", "0.5")
    asked = [make_job(f"asks-{number}", number=number, request=text) for number, text in enumerate(texts, start=1)]
    ordered = sort_jobs(asked, fields=["GPUS"], view=VIEW)
    assert [job.status.request for job in ordered] == ["cpu", "0.5", "2x8G,0.5(T4)", "2(V100)", "16"]


@pytest.mark.parametrize("field", COLUMNS)
def test_jobs_are_ordered_by_every_column_though_some_have_no_value(field: str) -> None:
    place = QueuePlace(position=3, estimated_start=ago(hours=-2), basis="")
    jobs = [
        make_job("new"),
        make_job("wait", number=1, queue=place),
        make_job("run", number=2, start_time=ago(hours=1)),
    ]
    for sort in (field, f"-{field}"):
        assert len(sort_jobs(jobs, fields=[sort], view=VIEW)) == 3


def test_a_job_without_a_limit_comes_after_all_limits() -> None:
    limited = make_job("limited")
    limited = msgspec.structs.replace(
        limited, spec=msgspec.structs.replace(limited.spec, active_deadline_seconds=10**9)
    )
    ordered = sort_jobs([make_job("unlimited"), limited], fields=["TIMELIMIT"], view=VIEW)
    assert [job.metadata.name for job in ordered] == ["limited", "unlimited"]


def test_the_node_is_left_out_if_the_cluster_has_one() -> None:
    job = make_job(phase="Running", devices=[("a", 1), ("a", 0)])
    assert value(job, "NODELIST") == "a:0,1"
    assert value(job, "NODELIST", view=View(now=NOW, one_node=True)) == "0,1"


def with_containers(*containers: dict[str, Any]) -> GPUJob:
    job = make_job()
    spec = msgspec.structs.replace(job.spec, template=template_of({"containers": containers}))
    return msgspec.structs.replace(job, spec=spec)


def test_memory_is_the_sum_that_a_worker_requests_of_its_host() -> None:
    job = with_containers(
        {"name": "a", "resources": {"requests": {"memory": "1536Mi"}}},
        {"name": "b", "resources": {"requests": {"memory": "512Mi"}}},
    )
    assert value(job, "MEMORY") == 2048


def test_a_template_that_is_no_pod_has_no_memory() -> None:
    assert value(with_containers({"name": "a", "resources": {"requests": {"memory": "lots"}}}), "MEMORY") == 0


def test_a_waiting_job_has_a_position_and_an_expected_start() -> None:
    waits = make_job(queue=QueuePlace(position=3, estimated_start=ago(hours=-2), basis=""), phase="Queued")
    assert (value(waits, "POSITION"), value(waits, "ETA")) == (3, ago(hours=-2))
    runs = make_job(phase="Running")
    assert (value(runs, "POSITION"), value(runs, "ETA")) == (None, None)


@pytest.mark.parametrize(
    ("parse", "problem"),
    [
        (lambda: parse_fields("JOBID,foo", field="-f"), '-f "foo": unknown field, allowed are JOBID, NAME'),
        (lambda: parse_sort("-foo", field="-r"), '-r "-foo": unknown field, allowed are JOBID, NAME'),
    ],
)
def test_an_unknown_column_is_refused_with_the_known_ones(parse: Any, problem: str) -> None:
    with pytest.raises(InvalidQueryError) as refused:
        parse()
    assert problem in str(refused.value)
