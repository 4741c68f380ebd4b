"""The queue's answer to a submission, from the status of the new job."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.answers.submission import answer_of
from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAN = {"generation": 1, "nodes": [{"name": "a", "workers": 2}, {"name": "b", "workers": 1}]}


def job(*, spec: dict[str, Any] | None = None, **status: Any) -> GPUJob:
    fields = {
        "metadata": {"name": "new", "namespace": "red"},
        "spec": {"gpu": "2", "template": {"spec": {}}, **(spec or {})},
        "status": {"number": 7, **status},
    }
    return decode(msgspec.json.encode(fields), as_type=GPUJob)


def said(**fields: Any) -> str:
    found = answer_of(job(**fields), now=NOW)
    assert found is not None
    return str(found)


@pytest.mark.parametrize("status", [{}, {"phase": "Queued"}, {"phase": "Queued", "reason": "Evaluating"}])
def test_before_the_queue_has_decided_there_is_no_answer(status: dict[str, Any]) -> None:
    assert answer_of(job(**status), now=NOW) is None
    assert answer_of(job(number=None, phase="Queued", reason="Resources"), now=NOW) is None


def test_a_job_with_a_plan_starts_on_its_nodes() -> None:
    placement = {**PLAN, "worker": {"request": "2"}}
    assert said(phase="Starting", placement=placement) == "It starts now on a (4 GPUs), b (2 GPUs)."
    found = answer_of(job(phase="Starting", placement=placement), now=NOW)
    assert found is not None
    assert (found.outcome, found.starts_in_seconds) == ("Starts", 0.0)


def test_a_job_that_starts_without_its_gpus_says_so() -> None:
    text = said(phase="Starting", device="cpu", placement={**PLAN, "worker": {"request": ""}})
    assert text == "It starts now. Runs on the CPU."


def test_a_job_that_has_ended_already_has_started() -> None:
    assert said(phase="Succeeded", startTime="2026-01-01T11:59:59Z") == "It starts now."


def test_a_job_that_waits_has_its_place_reason_estimate_and_bounds() -> None:
    queue = {
        "position": 3,
        "estimatedStart": "2026-01-01T12:20:00Z",
        "estimatedStartEarliest": "2026-01-01T12:15:00Z",
        "estimatedStartLatest": "2026-01-01T12:31:00Z",
        "basis": "1 job has ended on a by then",
    }
    assert said(phase="Queued", reason="Resources", message="Need 2 GPUs, only 1 available", queue=queue) == (
        "It waits at place 3. Resources: Need 2 GPUs, only 1 available. "
        "It starts in about 20m00s (15m00s to 31m00s), at 2026-01-01T12:20:00Z: 1 job has ended on a by then."
    )


def test_a_job_that_no_node_could_ever_run_never_starts() -> None:
    text = said(phase="Queued", reason="ExceedsCapacity", message='no node has model V10; did you mean "V100"?')
    assert text == 'It can never start here. ExceedsCapacity: no node has model V10; did you mean "V100"?'


def test_of_an_array_the_task_speaks_that_says_why() -> None:
    message = "0 of 4 tasks run, 0 have ended, 4 wait; task 0: Need 100 GPUs, only 8 available"
    text = said(spec={"array": {"indexes": "0-3"}}, phase="Queued", reason="ExceedsCapacity", message=message)
    assert text == "It can never start here. ExceedsCapacity: task 0: Need 100 GPUs, only 8 available."


@pytest.mark.parametrize(
    ("spec", "status", "outcome"),
    [
        ({"beginTime": "2026-01-01T18:00:00Z"}, {"phase": "Queued", "reason": "BeginTime"}, "NotBefore"),
        ({}, {"phase": "Queued", "reason": "Dependency", "message": "it waits for a"}, "Blocked"),
        ({}, {"phase": "Held", "reason": "Held", "message": "Held"}, "Blocked"),
        ({}, {"phase": "Cancelled", "reason": "DependencyFailed", "message": "a failed"}, "Blocked"),
        ({}, {"phase": "Queued", "reason": "Invalid", "message": "gpu: no request"}, "Invalid"),
        ({}, {"phase": "Queued", "reason": "Quota", "message": "red may use 4 GPUs"}, "Waits"),
    ],
)
def test_each_reason_has_its_outcome(spec: dict[str, Any], status: dict[str, Any], outcome: str) -> None:
    found = answer_of(job(spec=spec, **status), now=NOW)
    assert found is not None
    assert found.outcome == outcome
