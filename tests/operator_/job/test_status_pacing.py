"""Which news of a job may wait for what follows, and for how long."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJobStatus
from dovetail_operator.job.status_pacing import Pacing


def status(**fields: Any) -> GPUJobStatus:
    return msgspec.convert(fields, GPUJobStatus)


def condition(type_: str, *, status: str = "True") -> dict[str, Any]:
    return {
        "type": type_, "status": status, "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
    }  # fmt: skip


STARTING = {"phase": "Starting", "reason": "Evaluating", "message": "Admitted"}
RUNNING = {"phase": "Running"}
MEMORY = {"strategy": "Conservative", "basis": "b", "peakMiB": 5}


ENDED = {"phase": "Preempted", "reason": "Priority", "message": "Is ended for GPUQuota a", "startTime": "t"}
ENDING = {**ENDED, "reason": "Evaluating", "message": "Waiting for the workers of the run before to end"}
AGAIN = {**ENDED, "startTime": None, "earlierRunSeconds": 4, "reason": "Resources", "queue": {"position": 2}}
RESERVED = {"time": "t", "nodes": [], "kept": [], "mode": "Exclusive"}


def wait(before: dict[str, Any], after: dict[str, Any], *, rush: bool = False) -> float:
    pacing = Pacing()
    pacing.written("u")
    return pacing.wait_seconds("u", before=status(**before), after=status(**after), rush=rush, now=0.25)


def of_workers(count: int, *, up: int) -> dict[str, Any]:
    """A gang of single GPUs of which so many workers run."""
    devices = [
        {"worker": at, "node": "n", "index": 0, "uuid": f"GPU-{at}", "shareMilli": 1000, "memoryMiB": 1}
        for at in range(up)
    ]
    waits = {"reason": "GangWaiting", "message": f"{count - up} of {count} workers wait"} if up < count else {}
    return {**RUNNING, **waits, "workersReady": up, "devices": devices}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"phase": "Queued", "reason": "Resources"}),
        ({"phase": "Queued", "reason": "Resources"}, {"phase": "Queued", "reason": "Priority"}),
        ({"phase": "Queued", "reason": "Resources"}, {"phase": "Queued", "reason": "Resources", "message": "Need 4"}),
        (STARTING, {"phase": "Running"}),
        (STARTING, {**STARTING, "reason": "ErrImagePull"}),
        (RUNNING, {**RUNNING, "conditions": [condition("DevicesHealthy", status="False")]}),
        (RUNNING, {**RUNNING, "memory": {**MEMORY, "limited": True}}),
        ({**RUNNING, "memory": MEMORY}, {**RUNNING, "memory": {**MEMORY, "limited": True}}),
        (RUNNING, {**RUNNING, "preemption": {"count": 0, "at": "2026-01-01T00:00:00Z"}}),
        (RUNNING, {"phase": "Succeeded", "elapsed": "9s"}),
        (RUNNING, {**RUNNING, "tasks": {"total": 2, "succeeded": 1}}),
    ],
)
def test_what_matters_is_written_at_once(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert wait(before, after) == 0.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            STARTING,
            {
                **STARTING,
                "message": "Waiting for kube-scheduler",
                "workersActive": 1,
                "details": [{"code": "SchedulerToCome", "parameters": {}}],
            },
        ),
        (STARTING, {**STARTING, "reason": "ContainerCreating", "nodes": ["n"], "conditions": [condition("Enforced")]}),
        (
            {**RUNNING, "reason": "GangWaiting", "message": "2 of 4 workers wait"},
            {**RUNNING, "reason": "GangWaiting", "message": "1 of 4 workers wait", "workersReady": 3},
        ),
        (RUNNING, {**RUNNING, "message": "The job is over", "conditions": [condition("SuccessCriteriaMet")]}),
    ],
)
def test_what_a_job_passes_through_waits_for_a_second(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert wait(before, after) == 1.0


def test_a_large_gangs_status_is_written_seldom_while_workers_start_and_at_once_when_all_have() -> None:
    assert wait(of_workers(500, up=100), of_workers(500, up=200)) == 1.0
    assert wait(of_workers(4_000, up=900), of_workers(4_000, up=1_000)) == 5.0
    assert wait(of_workers(4_000, up=3_000), of_workers(4_000, up=4_000)) == 0.0


def test_a_preempted_job_says_why_it_was_ended_as_long_as_its_pods_may_take_to_end() -> None:
    assert wait(ENDED, ENDING) == 30.0
    assert wait(ENDED, {**ENDING, "startTime": None, "earlierRunSeconds": 4, "workersActive": 1}) == 30.0
    assert wait(ENDED, {**ENDED, "phase": "Starting", "reason": "Evaluating"}) == 0.0
    assert wait(ENDED, {**ENDED, "phase": "Cancelled", "reason": "Cancelled"}) == 0.0


def test_the_count_of_a_preemption_that_was_notice_and_end_at_once_comes_with_the_next_write() -> None:
    at_once = {**ENDED, "preemption": {"at": "2026-01-01T00:00:00Z", "by": "u"}}
    counted = {"preemption": {"count": 1, "lastTime": "2026-01-01T00:00:00Z", "by": "u"}}
    assert wait(at_once, {**ENDING, **counted}) == 30.0
    assert wait(at_once, {**AGAIN, **counted}, rush=True) == 90.0
    assert wait(at_once, {**AGAIN, **counted}) == 0.0


def test_the_next_reason_of_a_preempted_job_waits_only_in_a_rush() -> None:
    assert wait(ENDED, AGAIN) == 0.0
    assert wait(ENDED, AGAIN, rush=True) == 90.0
    assert wait(ENDING, AGAIN, rush=True) == 90.0
    assert wait(ENDED, ENDING, rush=True) == 90.0
    assert wait(AGAIN, {**AGAIN, "message": "Need 8"}, rush=True) == 0.0
    assert wait(ENDED, {**AGAIN, "queue": {"position": 1, "reserved": RESERVED}}, rush=True) == 0.0
    queued = {"phase": "Queued", "reason": "Evaluating"}
    assert wait(queued, {**queued, "reason": "Resources"}, rush=True) == 0.0


def test_what_waits_is_written_a_second_after_it_was_first_seen() -> None:
    pacing = Pacing()

    def at(now: float, message: str) -> float:
        after = status(**{**STARTING, "message": message})
        return pacing.wait_seconds("u", before=status(**STARTING), after=after, now=now)

    assert (at(10.0, "a"), at(10.75, "b"), at(11.0, "c")) == (1.0, 0.25, 0.0)
    pacing.written("u")
    assert at(20.0, "d") == 1.0


def test_a_job_that_went_leaves_nothing_behind() -> None:
    pacing = Pacing()
    pacing.wait_seconds("u", before=status(**STARTING), after=status(**{**STARTING, "message": "m"}), now=0)
    pacing.forget("u")
    after = status(**{**STARTING, "message": "m"})
    assert pacing.wait_seconds("u", before=status(**STARTING), after=after, now=9.0) == 1.0


def test_a_state_that_was_seen_to_begin_is_written_a_second_after_that() -> None:
    pacing = Pacing()
    after = status(**{**STARTING, "message": "Waiting for kube-scheduler"})
    pacing.passing("u", now=10.0)
    pacing.passing("u", now=10.5)
    waits = [pacing.wait_seconds("u", before=status(**STARTING), after=after, now=now) for now in (10.4, 11)]
    assert waits == pytest.approx([0.6, 0.0])


def test_a_state_that_begins_while_many_jobs_start_is_written_after_five_seconds() -> None:
    many = True
    pacing = Pacing(many_start=lambda _: many)
    after = status(**{**STARTING, "message": "Waiting for kube-scheduler"})

    def wait_of(uid: str, now: float) -> float:
        return pacing.wait_seconds(uid, before=status(**STARTING), after=after, now=now)

    pacing.passing("noted", now=10.0)
    assert wait_of("seen", 10.0) == 5.0
    many = False
    # As it began, whatever starts later.
    assert (wait_of("noted", 11.0), wait_of("seen", 12.0), wait_of("seen", 15.0)) == (4.0, 3.0, 0.0)
    assert wait_of("later", 12.0) == 1.0
    pacing.written("seen")
    assert wait_of("seen", 20.0) == 1.0
    many = True
    assert pacing.wait_seconds("runs", before=status(**STARTING), after=status(**RUNNING), now=30.0) == 0.0
