"""Jobs on which our own code fails: told so at once, tried again after a while, and never without a status."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.api.gpujob import GPUJob
from dovetail_operator.controller import reconciler
from dovetail_operator.job.observation import Observed
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.queue import cycle
from dovetail_operator.state.decisions import Failing
from dovetail_operator.state.state import Requests, read_request
from tests.core.kube.api import Api
from tests.operator_.builders import NOW, make_job, make_state, see
from tests.operator_.controller import test_controller
from tests.operator_.controller.test_controller import Rig, created, numbered, until_phase, until_status

__all__ = ["rig"]

rig = test_controller.rig
FAULT = AttributeError("'str' object has no attribute 'get'")


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_it_is_tried_again_later_each_time_and_minutes_later_at_most() -> None:
    failing, job, now, waits = Failing(), make_job(), NOW, []
    for _ in range(6):
        assert failing.record(job, error=FAULT)
        assert not failing.record(job, error=FAULT)
        obstacle = failing.obstacle_of(job, now=now)
        assert obstacle is not None
        assert obstacle.until is not None
        waits.append((obstacle.until - now).total_seconds())
        now = obstacle.until
        assert failing.obstacle_of(job, now=now) is None
    assert waits == [30, 60, 120, 240, 300, 300]


def test_another_generation_of_the_job_is_tried_at_once_and_its_waits_begin_anew() -> None:
    failing = Failing()
    for seconds in (0, 30):
        failing.obstacle_of(make_job(), now=later(seconds))
        failing.record(make_job(), error=FAULT)
    edited = make_job(meta={"generation": 2})
    assert failing.obstacle_of(edited, now=NOW) is None
    assert failing.record(edited, error=FAULT)
    obstacle = failing.obstacle_of(edited, now=NOW)
    assert obstacle is not None
    assert obstacle.until == later(30)


def test_the_log_has_a_failure_once_for_each_generation_of_the_job() -> None:
    failing, logs = Failing(), []
    for generation, seconds in ((1, 0), (1, 30), (1, 200), (2, 200)):
        job = make_job(meta={"generation": generation})
        failing.obstacle_of(job, now=later(seconds))
        with capture_logs() as found:
            failing.record(job, error=FAULT)
        logs.append([each["job"] for each in found])
    assert logs == [["team/x"], [], [], ["team/x"]]


def test_a_job_is_tried_again_only_when_its_pause_is_over_and_only_in_its_generation() -> None:
    failing, job = Failing(), make_job()
    assert not failing.is_tried(job)
    failing.record(job, error=FAULT)
    assert failing.obstacle_of(job, now=NOW) is not None
    assert not failing.is_tried(job)
    assert failing.obstacle_of(job, now=later(30)) is None
    assert (failing.is_tried(job), failing.is_tried(make_job(meta={"generation": 2}))) == (True, False)
    assert failing.record(job, error=FAULT)
    assert not failing.is_tried(job)


def test_a_job_that_is_deleted_and_made_again_begins_with_the_shortest_pause() -> None:
    failing, job = Failing(), make_job()
    for _ in range(2):
        failing.record(job, error=FAULT)
        failing.obstacle_of(job, now=NOW)
        failing.obstacle_of(job, now=later(600))
    assert job.metadata.uid in failing.uids
    failing.forget(job.metadata.uid)
    failing.forget(job.metadata.uid)
    assert job.metadata.uid not in failing.uids
    failing.record(job, error=FAULT)
    obstacle = failing.obstacle_of(job, now=NOW)
    assert obstacle is not None
    assert obstacle.until == later(30)


def test_a_job_that_waits_for_another_try_is_looked_at_when_it_is_due() -> None:
    failing, job = Failing(), numbered()
    failing.record(job, error=FAULT)
    outcome = reconcile(see(job, obstacle=failing.obstacle_of(job, now=NOW)))
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "Invalid")
    assert outcome.wake_at == later(30)


def test_a_request_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, job = make_state(a=1), numbered()
    known.store.job_changed(job)
    whole = read_request
    monkeypatch.setattr(f"{Requests.__module__}.read_request", _raising)

    def seen(seconds: float) -> Observed:
        found = known.observe("team/x", now=later(seconds))
        assert found is not None
        return found

    assert seen(0).obstacle is not None
    # It still fails, and the job is still told so.
    assert seen(30).obstacle is not None
    monkeypatch.setattr(f"{Requests.__module__}.read_request", whole)
    assert seen(89).obstacle is not None
    assert seen(90).obstacle is None
    assert seen(90).ask is not None


def _raising(*_: Any, **__: Any) -> Any:
    raise FAULT


@pytest.mark.parametrize("fails", ["the queue's look", "what follows for a job"])
async def test_a_job_starts_once_what_the_operator_failed_on_has_passed(
    rig: Rig, api: Api, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    job = numbered()
    module, name = (cycle, "_survey_one") if fails == "the queue's look" else (reconciler, "reconcile")
    whole = getattr(module, name)

    def failing(about: Any, *args: Any, **options: Any) -> Any:
        if getattr(about, "obstacle", None) is None:
            raise FAULT
        return whole(about, *args, **options)

    monkeypatch.setattr(module, name, failing)
    rig.accept_status(job, number=1, phase="Queued", reason="Invalid")
    rig.accept_status(job, version=13, number=1, phase="Starting")
    rig.accept_status(job, version=14, number=1, phase="Starting")
    api.answer(f"POST {test_controller.JOBS}", created(job))
    rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_status(api)
        assert rig.status_of()["reason"] == "Invalid"
        monkeypatch.setattr(module, name, whole)
        monkeypatch.setattr(test_controller, "NOW", later(30))
        rig.controller.changes.job_changed(_seen_again(job))
        await until_phase(rig, "Starting")


def _seen_again(job: GPUJob) -> GPUJob:
    return make_job(job.metadata.name, status={"number": 1, "phase": "Queued"}, meta={"resourceVersion": "12"})
