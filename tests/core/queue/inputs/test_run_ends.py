"""How long jobs are taken to run."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.queue.inputs.run_ends import RunTimes, leaving_soon
from dovetail.queue.model.candidates import SOON_SECONDS, Leaving
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod

RUN_TIMES = RunTimes(default_seconds=1000, by_namespace={"other": 500})


def leaving(job: GPUJob, *, ran: float) -> Leaving:
    child = make_child(job, status={"startTime": at(-ran)})
    (found,) = RUN_TIMES.run_of(job, child=child, pods=[make_pod()]).leaving(now=NOW)
    return found


@pytest.mark.parametrize(
    ("spec", "namespace", "seconds"),
    [
        ({"activeDeadlineSeconds": 100}, "team", 130),
        ({}, "team", 1000),
        ({}, "other", 500),
    ],
    ids=["its limit, and the time to end", "the default", "its namespace's"],
)
def test_a_job_is_taken_to_run(spec: dict[str, Any], namespace: str, seconds: float) -> None:
    assert RUN_TIMES.run_seconds(make_job(meta={"namespace": namespace}, **spec)) == seconds


def test_the_time_that_its_containers_are_given_to_end_is_the_template_s() -> None:
    template = {"spec": {"containers": [{"name": "main"}], "terminationGracePeriodSeconds": 5}}
    assert RUN_TIMES.run_seconds(make_job(activeDeadlineSeconds=100, template=template)) == 105


@pytest.mark.parametrize(
    ("limit", "ran", "seconds", "assumed"),
    [(100, 40, 90, False), (100, 500, 60, False), (None, 400, 600, True), (None, 3000, 3000, True)],
    ids=["by its limit", "beyond it: any moment", "by the default", "beyond that: as long again"],
)
def test_a_running_job_is_taken_to_leave(limit: int | None, ran: float, seconds: float, assumed: bool) -> None:
    job = make_job() if limit is None else make_job(activeDeadlineSeconds=limit)
    found = leaving(job, ran=ran)
    assert (found.at_seconds, found.assumed) == (seconds, assumed)


@pytest.mark.parametrize(
    ("renewed", "ran", "seconds"),
    [(None, 40, 565), (-10, 40, 595), (-10, 3000, 595), (None, 700, 700)],
    ids=["as it began", "from its renewal", "renewed again and again", "over: it may be renewed"],
)
def test_a_reservation_is_taken_to_hold_its_devices_until_its_lease_ends(
    renewed: float | None, ran: float, seconds: float
) -> None:
    lease: dict[str, Any] = {"durationSeconds": 600}
    if renewed is not None:
        lease["renewTime"] = at(renewed)
    found = leaving(make_job(reservation=lease, maximumExecutionTimeSeconds=5), ran=ran)
    assert (found.at_seconds, found.assumed) == (seconds, True)


def test_a_pod_that_is_being_deleted_leaves_soon_and_not_at_the_end_of_its_run() -> None:
    job = make_job()
    stays, goes = make_pod(meta={"uid": "stays"}), make_pod(meta={"uid": "goes", "deletionTimestamp": at(-1)})
    run = RUN_TIMES.run_of(job, child=make_child(job, status={"startTime": at(-1)}), pods=[stays, goes])
    assert run.held == ("stays",)
    assert [(each.key, each.at_seconds) for each in leaving_soon([goes])] == [("goes", SOON_SECONDS)]


def test_pods_without_a_node_and_those_that_ended_hold_nothing_that_could_leave() -> None:
    job = make_job()
    child = make_child(job, status={"startTime": at(-1)})
    pods = [make_pod(node=""), make_pod(phase="Succeeded")]
    assert RUN_TIMES.run_of(job, child=child, pods=pods).leaving(now=NOW) == []
    assert RUN_TIMES.run_of(job, child=make_child(job), pods=[make_pod()]).leaving(now=NOW + timedelta(seconds=1)) == []
