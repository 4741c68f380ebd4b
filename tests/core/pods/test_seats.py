"""Seats of a guest's record: which pods may have one, and how many pods can still come."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.jobs.guests.record import record_of
from dovetail.pods.seats import can_come, misfit
from tests.core.jobs.guests.examples import EXPECTED, guest, kind_named
from tests.core.jobs.guests.test_kinds import each_kind

JOB = kind_named("Job")
ONE = {names.REQUEST: "1"}


def record(found: Guest, *, kind: Kind = JOB, **spec: Any) -> GPUJob:
    """The record of a guest."""
    made = record_of(found, kind=kind)
    return job_of({**made, "spec": {**made["spec"], **spec}})


def changed(found: Guest, **spec: Any) -> Guest:
    """The guest with these fields of its spec."""
    return msgspec.structs.replace(found, spec={**found.spec, **spec})


@each_kind
def test_all_workers_of_a_guest_that_starts_can_come_and_none_after_its_end(kind: Kind) -> None:
    found = guest(kind)
    workers = EXPECTED[kind.resource.kind].workers
    assert can_come(found, kind=kind, record=record(found, kind=kind)) == workers
    going = msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert can_come(going, kind=kind, record=record(found, kind=kind)) == 0


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param({"parallelism": 0}, {}, 0, id="it is scaled to nothing"),
        pytest.param({"parallelism": 2, "completions": 2}, {}, 2, id="it is scaled down"),
        pytest.param({"parallelism": 9, "completions": 9}, {}, 9, id="it is scaled up"),
        pytest.param({"parallelism": 4, "completions": 9}, {"succeeded": 3}, 4, id="more come after those that end"),
        pytest.param({"parallelism": 4, "completions": 9}, {"succeeded": 8}, 1, id="the last one is left"),
        pytest.param({"parallelism": 4, "completions": 4}, {"succeeded": 1, "failedIndexes": "0,2-3"}, 0,
                     id="indexes that have failed for good do not come again"),
        pytest.param({}, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, 0, id="it is about to fail"),
        pytest.param({}, {"conditions": [{"type": "Complete", "status": "True"}]}, 0, id="it is complete"),
        pytest.param({"parallelism": "many"}, {}, 0, id="it cannot be read"),
    ],
)  # fmt: skip
def test_how_many_pods_of_a_batch_job_can_come_where(
    spec: dict[str, Any], status: dict[str, Any], expected: int
) -> None:
    found = changed(guest(JOB), parallelism=4, completions=4)
    own = record(found)
    now = msgspec.structs.replace(changed(found, **spec), status=status)
    assert can_come(now, kind=JOB, record=own) == expected


def test_pods_of_a_changed_template_do_not_come_for_the_seats_of_the_record() -> None:
    kind = kind_named("RayCluster")
    found = guest(kind)
    own = record(found, kind=kind)
    (workers,) = found.spec["workerGroupSpecs"]
    template = {**workers["template"], "metadata": {"annotations": {names.REQUEST: "8"}}}
    after = changed(found, workerGroupSpecs=[{**workers, "template": template}])
    assert (can_come(found, kind=kind, record=own), can_come(after, kind=kind, record=own)) == (2, 0)


def test_pods_that_have_succeeded_are_not_waited_for_where_the_status_does_not_count_them() -> None:
    kind = kind_named("JobSet")
    found = guest(kind)
    assert [can_come(found, kind=kind, record=record(found, kind=kind), succeeded=each) for each in (0, 1, 4, 9)] == [
        4,
        3,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("annotations", "spec", "why"),
    [
        (ONE, {}, ""),
        ({names.REQUEST: " 1 "}, {}, ""),
        ({}, {}, ""),
        ({names.REQUEST: "8"}, {}, "it requests 8, and each pod of GPUJob job-train has 1"),
        ({names.REQUEST: "0.5"}, {}, "it requests 0.5, and each pod of GPUJob job-train has 1"),
        ({names.REQUEST: "1(A100)"}, {}, "it requests 1(A100), and each pod of GPUJob job-train has 1"),
        ({names.REQUEST: "1x1", names.MODE: "TimeShared"}, {},
         "its mode, memory strategy or workload is not that of GPUJob job-train"),
        ({**ONE, names.WORKLOAD: "Training"}, {},
         "its mode, memory strategy or workload is not that of GPUJob job-train"),
        (ONE, {"gpu": None, "resources": {"device": "cpu"}},
         "it requests 1, and GPUJob job-train has pods without GPUs"),
        ({}, {"gpu": None, "resources": {"device": "cpu"}}, ""),
    ],
)  # fmt: skip
def test_a_pod_gets_a_seat_of_its_own_size_alone(annotations: dict[str, str], spec: dict[str, Any], why: str) -> None:
    assert misfit(annotations, record=record(guest(JOB), **spec)) == why


@pytest.mark.parametrize(
    "annotations", [{f"{names.REQUEST}.main": "8"}, {**ONE, f"{names.REQUEST}.side": "1"}, {names.REQUEST: "many"}]
)
def test_a_pod_whose_request_is_no_record_s_gets_no_seat(annotations: dict[str, str]) -> None:
    assert misfit(annotations, record=record(guest(JOB)))
