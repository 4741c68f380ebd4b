"""The answers about jobs: their rows, their details and their events."""

import msgspec
import pytest

from dovetail import names
from dovetail.answers.jobs import event_rows, job_details, job_row, position_of
from dovetail.api.builtin import Event
from dovetail.api.gpujob import Dependency, DependencyStatus, QueuePlace
from dovetail.api.meta import Condition, MessageDetail, ObjectMeta
from tests.cli.builders import ago, make_job


def test_a_row_has_numbers_and_full_devices() -> None:
    row = job_row(make_job("run", number=3, phase="Running", gpus=2, start_time=ago(hours=1), devices=[("b", 3)]))
    assert (row.number, row.phase, row.gpus, row.started_at) == (3, "Running", 2, ago(hours=1))
    assert msgspec.to_builtins(row)["devices"] == [
        {"worker": 0, "node": "b", "index": 3, "uuid": "GPU-b-3", "shareMilli": 1000, "memoryMiB": 1024}
    ]


def test_a_row_of_a_waiting_job_has_its_place_in_the_queue() -> None:
    place = QueuePlace(
        position=3,
        estimated_start=ago(hours=-2),
        estimated_start_earliest=ago(hours=-1),
        estimated_start_latest=ago(hours=-3),
        bounds_held=0.9,
        basis="1 job has ended by then",
        basis_details=[MessageDetail(code="OnBasis", parameters={"basis": "1 job has ended by then"})],
    )
    job = make_job(queue=place, phase="Queued", reason="Resources", message="Need 4 GPUs, only 1 available")
    row, position = job_row(job), position_of(job)
    for found in (row, position):
        assert (found.position, found.estimated_start, found.basis) == (3, ago(hours=-2), "1 job has ended by then")
        assert (found.earliest, found.latest) == (ago(hours=-1), ago(hours=-3))
        assert [each.code for each in found.basis_details] == ["OnBasis"]
        assert (found.reason, found.message) == ("Resources", "Need 4 GPUs, only 1 available")
    assert position.bounds_held == 0.9


def test_a_job_that_no_operator_has_seen_has_the_request_of_its_spec() -> None:
    row = job_row(make_job("new"))
    assert (row.number, row.phase, row.request, row.position, row.basis) == (None, "Queued", "1", None, "")


def test_dependencies_are_those_of_the_spec_with_the_state_that_the_operator_found() -> None:
    job = make_job("new")
    asked = [Dependency(name="first"), Dependency(name="second", condition="Started"), Dependency(name="third")]
    known = [
        DependencyStatus(name="third", condition="Succeeded", state="Waiting"),
        DependencyStatus(name="second", condition="Started", state="Met"),
    ]
    job = msgspec.structs.replace(
        job,
        spec=msgspec.structs.replace(job.spec, dependencies=asked),
        status=msgspec.structs.replace(job.status, dependencies=known),
    )
    assert msgspec.to_builtins(job_row(job))["dependencies"] == [
        {"name": "first", "condition": "Succeeded", "state": None},
        {"name": "second", "condition": "Started", "state": "Met"},
        {"name": "third", "condition": "Succeeded", "state": "Waiting"},
    ]


def test_details_are_the_row_and_the_object_s_spec_and_status() -> None:
    job = make_job("run", number=3, phase="Running", start_time=ago(hours=1))
    details = msgspec.to_builtins(job_details(job))
    assert details["row"] == msgspec.to_builtins(job_row(job))
    assert (details["spec"]["gpu"], details["status"]["startTime"]) == ("1", ago(hours=1))


def test_events_are_the_oldest_first_with_the_time_that_their_writer_states() -> None:
    later = Event(reason="Running", last_timestamp=ago(minutes=1))
    first = Event(reason="Resources", event_time="2026-11-21T11:00:01.123456Z", count=3)
    assert [(each.at, each.reason, each.count) for each in event_rows([later, first, Event(reason="Numbered")])] == [
        (None, "Numbered", 1),
        ("2026-11-21T11:00:01Z", "Resources", 3),
        (ago(minutes=1), "Running", 1),
    ]


def test_events_of_one_time_keep_the_order_of_their_writes() -> None:
    events = [
        Event(metadata=ObjectMeta(resource_version=version), reason=version, last_timestamp=ago(minutes=1))
        for version in ("100", "12", "99", "11")
    ]
    assert [each.reason for each in event_rows(events)] == ["11", "12", "99", "100"]


def test_an_event_that_came_several_times_is_of_its_last_time() -> None:
    event = Event(
        reason="Resources", first_timestamp=ago(hours=3), event_time=ago(hours=2), last_timestamp=ago(hours=1)
    )
    older = msgspec.structs.replace(event, last_timestamp=None)
    oldest = msgspec.structs.replace(older, event_time=None)
    assert [each.at for each in event_rows([event, older, oldest])] == [ago(hours=3), ago(hours=2), ago(hours=1)]


@pytest.mark.parametrize(("status", "idle"), [("True", "since noon"), ("False", ""), ("Unknown", "")])
def test_a_job_is_idle_as_long_as_its_condition_is_true(status: str, idle: str) -> None:
    said = {"type": names.CONDITION_IDLE, "status": status, "reason": "x", "message": "since noon"}
    conditions = msgspec.convert([said | {"lastTransitionTime": ago(hours=1)}], list[Condition])
    job = make_job("run", number=3, phase="Running")
    status_of = msgspec.structs.replace(job.status, conditions=conditions)
    assert job_row(msgspec.structs.replace(job, status=status_of)).idle == idle
    assert job_row(job).idle == ""
