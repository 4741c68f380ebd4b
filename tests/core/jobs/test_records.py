from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob, job_of
from dovetail.jobs.records import cut_short, is_worth_keeping, record_of


def job(status: dict[str, Any], **meta: Any) -> GPUJob:
    metadata = {
        "name": "x", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z",
        "annotations": {"dovetail.dev/user": "ada"}, **meta,
    }  # fmt: skip
    template = {"spec": {"containers": [{"name": "main"}]}}
    return job_of({"metadata": metadata, "spec": {"gpu": 1, "template": template}, "status": status})


def device(index: int, *, share: int = 1000) -> dict[str, Any]:
    return {
        "worker": 0, "node": "a", "index": index, "uuid": f"GPU-{index}", "shareMilli": share, "memoryMiB": 1,
    }  # fmt: skip


RAN = {
    "phase": "Succeeded", "gpus": 2, "startTime": "2026-01-01T12:01:00Z", "completionTime": "2026-01-01T12:11:00Z",
    "number": 7, "nodes": ["a"], "devices": [device(0), device(1)],
}  # fmt: skip


def test_a_record_says_who_what_where_how_long_and_how_much() -> None:
    found = record_of(job(RAN))
    assert (found.user, found.number, found.phase, found.nodes) == ("ada", 7, "Succeeded", ["a"])
    assert (found.wait_seconds, found.run_seconds, found.gpu_seconds) == (60, 600, 1200)
    assert found.devices == ["GPU-0", "GPU-1"]


def test_a_share_counts_as_a_share() -> None:
    assert record_of(job(RAN | {"devices": [device(0, share=250)]})).gpu_seconds == 150


def test_all_attempts_count_and_the_wait_ends_with_the_first() -> None:
    first = {
        "number": 1, "reason": "Failed", "message": "", "counted": True, "startTime": "2026-01-01T12:00:10Z",
        "endTime": "2026-01-01T12:00:40Z",
    }  # fmt: skip
    found = record_of(job(RAN | {"attempt": 2, "attempts": [first], "earlierRunSeconds": 30}))
    assert (found.attempts, found.wait_seconds, found.run_seconds, found.gpu_seconds) == (2, 10, 630, 1260)


def test_a_job_that_never_ran_used_nothing() -> None:
    found = record_of(job({"phase": "Cancelled", "gpus": 4, "completionTime": "2026-01-01T12:11:00Z"}))
    assert (found.wait_seconds, found.run_seconds, found.gpu_seconds) == (None, 0, 0)


def test_clocks_that_disagree_make_no_negative_times() -> None:
    found = record_of(job(RAN | {"startTime": "2026-01-01T12:12:00Z"}, creationTimestamp="2026-01-01T12:30:00Z"))
    assert (found.wait_seconds, found.run_seconds) == (0, 0)


def test_a_job_that_was_deleted_while_it_ran_has_used_its_devices_until_then() -> None:
    running = record_of(job(RAN | {"phase": "Running", "completionTime": None}))
    assert (running.phase, running.ended) == ("Running", None)
    found = cut_short(running, now=datetime(2026, 1, 1, 12, 2, tzinfo=UTC), message="gone")
    assert (found.phase, found.reason, found.ended) == ("Cancelled", "Deleted", "2026-01-01T12:02:00Z")
    assert found.gpu_seconds == 120


HELD = {
    "type": "Suspended",
    "status": "True",
    "reason": "Held",
    "message": "",
    "lastTransitionTime": "2026-01-01T12:03:00Z",
}


def test_a_job_that_was_cancelled_while_it_was_suspended_has_used_nothing_since() -> None:
    found = record_of(job(RAN | {"phase": "Cancelled", "conditions": [HELD]}))
    assert (found.run_seconds, found.gpu_seconds, found.ended) == (120, 240, "2026-01-01T12:11:00Z")


def test_a_job_that_was_deleted_while_it_was_suspended_has_used_nothing_since() -> None:
    held = record_of(job(RAN | {"phase": "Suspended", "completionTime": None, "conditions": [HELD]}))
    now = datetime(2026, 1, 1, 13, tzinfo=UTC)
    found = cut_short(held, now=now, message="gone", stopped=HELD["lastTransitionTime"])
    assert (found.run_seconds, found.ended) == (120, "2026-01-01T13:00:00Z")


@pytest.mark.parametrize(
    ("status", "kept"),
    [
        ({}, False),
        ({"phase": "Queued"}, False),
        ({"phase": "Running", "startTime": "2026-01-01T12:01:00Z"}, True),
        ({"phase": "TimedOut"}, True),
    ],
)
def test_what_has_begun_or_ended_is_worth_keeping(status: dict[str, Any], kept: bool) -> None:
    assert is_worth_keeping(job(status)) is kept


def elastic(status: dict[str, Any]) -> GPUJob:
    """A job of up to five workers that runs with two, each on one device."""
    template = {"spec": {"containers": [{"name": "main"}]}}
    spec = {"gpu": 1, "workers": 5, "minWorkers": 1, "template": template}
    metadata = {"name": "x", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z"}
    devices = [device(0), device(1) | {"worker": 1}]
    ran = RAN | {"request": "1", "elastic": {"workers": 2, "requested": 2}, "devices": devices} | status
    return job_of({"metadata": metadata, "spec": spec, "status": ran})


def test_the_record_of_an_elastic_job_tells_the_workers_that_it_ran_with() -> None:
    found = record_of(elastic({}))
    assert (found.workers, found.gpus, found.gpu_seconds) == (2, 2, 1200)


def test_an_elastic_job_is_charged_for_the_workers_that_each_of_its_runs_had() -> None:
    # 100 s with five workers, and then 600 s with two.
    found = record_of(
        elastic({"earlierRunSeconds": 100, "elastic": {"workers": 2, "requested": 2, "earlierWorkerSeconds": 500}})
    )
    assert (found.run_seconds, found.gpu_seconds) == (700, 1700)


def test_an_elastic_job_that_is_deleted_while_it_runs_is_charged_for_its_earlier_runs_too() -> None:
    status = {"phase": "Running", "completionTime": None, "earlierRunSeconds": 100}
    running = record_of(elastic(status | {"elastic": {"workers": 2, "requested": 2, "earlierWorkerSeconds": 500}}))
    found = cut_short(running, now=datetime(2026, 1, 1, 12, 2, tzinfo=UTC), message="gone")
    assert (found.run_seconds, found.gpu_seconds) == (160, 620)


def test_a_share_that_was_given_back_by_a_suspension_still_counts_as_a_share() -> None:
    status = RAN | {"phase": "Cancelled", "request": "0.5", "gpus": 1, "devices": [], "conditions": [HELD]}
    assert record_of(job(status)).gpu_seconds == 60
