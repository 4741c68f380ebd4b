"""A job as a row for programs, and with all its details."""

import msgspec

from dovetail.api.builtin import Event
from dovetail.api.gpujob import QueuePlace
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.query.jobs.details import job_details
from dovetail.query.jobs.rows import job_row
from tests.cli.builders import NOW, ago, make_job


def test_a_row_has_numbers_and_full_devices() -> None:
    job = make_job("run", number=3, phase="Running", gpus=2, start_time=ago(hours=1), devices=[("b", 3), ("a", 1)])
    row = job_row(job, now=NOW)
    assert (row.id, row.state, row.st, row.gpus, row.run_seconds, row.place) == (3, "Running", "R", 2, 3600, "a:1 b:3")
    assert msgspec.to_builtins(row)["devices"][0] == {
        "worker": 0, "node": "b", "index": 3, "uuid": "GPU-b-3", "share_milli": 1000, "memory_mib": 1024,
    }  # fmt: skip


def test_the_run_time_of_a_suspended_job_does_not_grow() -> None:
    held = Condition(type="Suspended", status="True", reason="", message="", last_transition_time=ago(minutes=50))
    job = make_job(phase="Suspended", start_time=ago(hours=1), conditions=[held])
    assert job_row(job, now=NOW).run_seconds == 600


def test_a_row_of_a_waiting_job_has_its_place_in_the_queue_and_its_reason() -> None:
    place = QueuePlace(position=3, estimated_start=ago(hours=-2), basis="1 job has ended by then")
    row = job_row(
        make_job(queue=place, phase="Queued", reason="Resources", message="Need 4 GPUs, only 1 available"), now=NOW
    )
    assert (row.position, row.estimated_start, row.estimate_basis) == (3, ago(hours=-2), "1 job has ended by then")
    assert row.place == "(Resources: Need 4 GPUs, only 1 available)"


def test_a_job_that_no_operator_has_seen_shows_the_request_of_its_spec() -> None:
    row = job_row(make_job("new"), now=NOW)
    assert (row.id, row.state, row.request) == (None, "Queued", "1")
    assert row.place == "(Evaluating: no operator has seen it yet)"


def test_details_have_all_of_the_row_and_the_events_oldest_first() -> None:
    job = make_job("run", number=3, phase="Running", start_time=ago(hours=1))
    later = Event(reason="Running", last_timestamp=ago(minutes=1))
    first = Event(reason="Resources", event_time="2026-11-21T11:00:01.123456Z", count=3)
    details = job_details(job, events=[later, first], now=NOW)
    assert msgspec.to_builtins(details).items() >= msgspec.to_builtins(job_row(job, now=NOW)).items()
    assert details.events is not None
    assert [(each.time, each.reason, each.count) for each in details.events] == [
        ("2026-11-21T11:00:01Z", "Resources", 3),
        (ago(minutes=1), "Running", 1),
    ]


def test_events_of_one_time_keep_the_order_of_their_writes() -> None:
    events = [
        Event(metadata=ObjectMeta(resource_version=version), reason=version, last_timestamp=ago(minutes=1))
        for version in ("12", "11")
    ]
    found = job_details(make_job(), events=events, now=NOW).events
    assert found is not None
    assert [each.reason for each in found] == ["11", "12"]


def test_events_that_the_reader_may_not_list_are_none_and_not_empty() -> None:
    assert job_details(make_job(), events=None, now=NOW).events is None
    assert job_details(make_job(), events=[], now=NOW).events == []


def test_a_job_without_the_gpus_that_it_requests_says_so() -> None:
    runs = make_job(phase="Running", nodes=["a"], device="cpu", request="2")
    assert (job_row(runs, now=NOW).place, job_row(runs, now=NOW).device) == ("a (CPU)", "cpu")
    asked_so = make_job(phase="Running", nodes=["a"], device="cpu", request="cpu")
    assert job_row(asked_so, now=NOW).place == "a"


def test_the_place_of_a_simulated_job_says_that_it_is_simulated() -> None:
    running = {"phase": "Running", "devices": [("a", 1, 1000)]}
    assert job_row(make_job(**running, simulated=True), now=NOW).place == "a:1 (simulated)"
    assert job_row(make_job(**running), now=NOW).place == "a:1"
    assert job_row(make_job(phase="Succeeded", nodes=["a"], simulated=True), now=NOW).place == "a (simulated)"
