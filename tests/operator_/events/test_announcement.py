from typing import Any

import pytest

from dovetail.api.gpujob import GPUJobStatus, Preemption
from dovetail_operator.events.announcement import announcement
from tests.operator_.builders import make_job


def told(
    before: dict[str, Any], *, guest: bool = False, of_many: bool = False, **after: Any
) -> tuple[str, str, str] | None:
    status = GPUJobStatus(**after)
    news = announcement(make_job(status=before), status=status, shows_status=not guest, of_many=of_many)
    return None if news is None else (news.severity, news.reason, news.message)


QUEUED = {"phase": "Queued", "reason": "Resources", "message": "Need 4 GPUs, only 1 available"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"phase": "Preempted"}, QUEUED, ("Normal", "Resources", "Need 4 GPUs, only 1 available")),
        ({"phase": "Suspended"}, QUEUED, ("Normal", "Resources", "Need 4 GPUs, only 1 available")),
        (QUEUED, {**QUEUED, "message": "Need 4 GPUs, only 2 available"}, None),
        (QUEUED, {**QUEUED, "reason": "Fragmentation", "message": "apart"}, ("Normal", "Fragmentation", "apart")),
        (QUEUED, {"phase": "Running", "node_list": "a,b"}, ("Normal", "Running", "Running on a,b")),
        ({"phase": "Running"}, {"phase": "Running", "elapsed": "10s"}, None),
        ({"phase": "Starting", "reason": "Evaluating"}, {"phase": "Starting", "reason": "ContainerCreating"}, None),
        (
            {"phase": "Starting", "reason": "ContainerCreating"},
            {"phase": "Starting", "reason": "ImagePullBackOff", "message": "n1: no such image"},
            ("Normal", "Starting", "n1: no such image"),
        ),
        (
            {"phase": "Running"},
            {"phase": "Succeeded", "node_list": "a", "elapsed": "9s", "completion_time": "2026-01-01T00:00:00Z"},
            ("Normal", "Succeeded", "Succeeded on a after 9s"),
        ),
        (
            {"phase": "Running"},
            {"phase": "Failed", "reason": "BackoffLimitExceeded", "message": "exit code 3"},
            ("Warning", "Failed", "exit code 3"),
        ),
        (
            {},
            {"phase": "Queued", "reason": "ExceedsCapacity", "message": "too large"},
            ("Warning", "ExceedsCapacity", "too large"),
        ),
        (
            {},
            {"phase": "Queued", "reason": "Quota", "message": "team may have 2 GPUs"},
            ("Warning", "Quota", "team may have 2 GPUs"),
        ),
        (
            {},
            {"phase": "Queued", "reason": "NodeUnhealthy", "message": "a is lost"},
            ("Normal", "NodeUnhealthy", "a is lost"),
        ),
    ],
)
def test_an_event_is_posted_once_for_each_change_that_matters(
    before: dict[str, Any], after: dict[str, Any], expected: tuple[str, str, str] | None
) -> None:
    assert told(before, **after) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"phase": "Starting", "reason": "Evaluating", "node_list": "a"}),
        ({"phase": "Queued", "reason": "Evaluating"}, {"phase": "Starting", "reason": "ContainerCreating"}),
        ({"phase": "Starting", "reason": "ContainerCreating"}, {"phase": "Running", "node_list": "a"}),
        ({}, {"phase": "Running", "node_list": "a"}),
    ],
)
def test_a_job_that_starts_at_once_says_so_in_its_status_alone_and_a_guest_has_an_event(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert told(before, **after) is None
    found = told(before, guest=True, **after)
    assert found is not None
    assert found[:2] == ("Normal", after["phase"])


@pytest.mark.parametrize(
    "reason", ["BeginTime", "Dependency", "Priority", "Resources", "Fragmentation", "MemoryGuard", "Reserved"]
)
def test_that_one_of_many_new_jobs_waits_for_its_turn_is_in_its_status_alone(reason: str) -> None:
    waits = {"phase": "Queued", "reason": reason, "message": "why"}
    assert told({}, of_many=True, **waits) is None
    assert told({}, **waits) == ("Normal", reason, "why")
    assert told({}, guest=True, of_many=True, **waits) == ("Normal", reason, "why")
    another = {**waits, "reason": "Held", "message": "another reason"}
    assert told(waits, of_many=True, **another) == ("Normal", "Held", "another reason")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (QUEUED, {"phase": "Starting", "reason": "Evaluating"}),
        ({"phase": "Suspended"}, {"phase": "Starting", "reason": "Evaluating"}),
        ({"phase": "Preempted", "reason": "Priority"}, {"phase": "Starting", "reason": "Evaluating"}),
        ({"phase": "Starting", "reason": "ImagePullBackOff"}, {"phase": "Running"}),
        ({"phase": "Starting", "reason": "ContainerCreating"}, {"phase": "Running", "reason": "NotEnforced"}),
    ],
)
def test_a_start_is_told_where_something_was_told_before_or_has_to_be(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    found = told(before, **after)
    assert found is not None
    assert found[1] == after["phase"]


def test_an_event_names_the_very_object() -> None:
    news = announcement(make_job(), status=GPUJobStatus(phase="Failed"))
    assert news is not None
    assert (news.about.name, news.about.namespace, news.about.uid) == ("x", "team", "uid-x")


def test_a_job_that_is_to_make_way_is_told_once_when_and_for_whom() -> None:
    made = Preemption(
        at="2026-01-01T12:00:30Z", by="uid-boss", message="Is preempted for boss of priority 50, its own is 10"
    )
    before = {"phase": "Running"}
    assert told(before, phase="Running", preemption=made) == (
        "Warning",
        "Preempting",
        "Is preempted for boss of priority 50, its own is 10: its workers are ended at 2026-01-01T12:00:30Z",
    )
    known = {**before, "preemption": {"at": "2026-01-01T12:00:30Z", "by": "uid-boss"}}
    assert told(known, phase="Running", preemption=made) is None


def test_a_job_that_ends_without_a_grace_period_has_one_event() -> None:
    made = Preemption(at="2026-01-01T12:00:00Z", by="uid-boss", message="Is ended for GPUQuota a")
    ended = told({"phase": "Running"}, phase="Preempted", reason="Priority", message=made.message, preemption=made)
    assert ended == ("Normal", "Preempted", "Is ended for GPUQuota a")
    known = {"phase": "Preempted", "reason": "Priority", "preemption": {"at": made.at, "by": made.by}}
    counted = Preemption(count=1, last_time=made.at, by=made.by)
    assert told(known, phase="Preempted", reason="Resources", preemption=counted) is None
