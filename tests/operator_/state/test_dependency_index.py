"""Jobs that wait for others, in the operator's state."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.job.actions import DeleteGPUJob, DeleteJob
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_child, make_job, make_state


def after(*names: str, name: str = "x", version: int = 10, phase: str | None = None, **spec: object) -> GPUJob:
    """A job that depends on these."""
    wanted = [{"name": other} for other in names]
    meta = {"resourceVersion": str(version)}
    return make_job(name, status={"number": 1, "phase": phase}, meta=meta, dependencies=wanted, **spec)


def obstacle(state: State, name: str = "x") -> Obstacle | None:
    return state.obstacle_of(state.store.jobs[f"team/{name}"], now=NOW)


def test_a_job_waits_until_the_other_has_succeeded() -> None:
    state = make_state(a=1)
    state.store.job_changed(after("first"))
    assert obstacle(state) == Obstacle(
        reason="Dependency", message="Waits for first to succeed (there is no such job yet)"
    )
    state.store.job_changed(make_job("first", status={"phase": "Running"}))
    assert obstacle(state) == Obstacle(reason="Dependency", message="Waits for first to succeed")
    state.store.job_changed(make_job("first", status={"phase": "Running", "number": 7}, meta={"resourceVersion": "11"}))
    assert obstacle(state) == Obstacle(reason="Dependency", message="Waits for job 7 (first) to succeed")
    state.store.job_changed(make_job("first", status={"phase": "Succeeded"}, meta={"resourceVersion": "12"}))
    assert obstacle(state) is None


def test_a_job_of_another_namespace_is_not_meant() -> None:
    state = make_state(a=1)
    state.store.job_changed(after("first"))
    state.store.job_changed(make_job("first", status={"phase": "Succeeded"}, meta={"namespace": "other"}))
    assert obstacle(state) is not None


def test_a_circle_is_told_to_those_in_it_and_ends_with_a_change() -> None:
    state = make_state(a=1)
    state.store.job_changed(after("y"))
    state.store.job_changed(after("x", name="y"))
    state.store.job_changed(after("x", name="behind"))
    told = "The dependencies go round in a circle, x → y → x: change or delete one of these jobs"
    assert obstacle(state) == Obstacle(reason="Invalid", message=told)
    behind = obstacle(state, "behind")
    assert behind is not None
    assert behind.reason == "Dependency"
    state.store.job_changed(after(name="y", version=11))
    assert obstacle(state) == Obstacle(reason="Dependency", message="Waits for job 1 (y) to succeed")


def test_all_of_a_circle_are_to_say_so_once_it_is_closed_and_once_it_is_open_again() -> None:
    state = make_state(a=1)
    for name, other in [("a", "b"), ("b", "c")]:
        state.store.job_changed(after(other, name=name))
        obstacle(state, name)
    assert state.store.dependencies.take_news() == set()
    state.store.job_changed(after("a", name="c"))
    obstacle(state, "c")
    assert state.store.dependencies.take_news() == {"team/a", "team/b", "team/c"}
    assert state.store.dependencies.take_news() == set()
    state.store.job_changed(after("a", name="c", version=11, phase="Cancelled"))
    obstacle(state, "b")
    assert state.store.dependencies.take_news() == {"team/a", "team/b", "team/c"}


def test_a_circle_ends_when_one_of_it_is_deleted_or_cancelled() -> None:
    state = make_state(a=1)
    state.store.job_changed(after("y"))
    state.store.job_changed(after("x", name="y"))
    state.store.job_deleted("team/y", uid="uid-y")
    assert obstacle(state) == Obstacle(reason="Dependency", message="Waits for y to succeed (there is no such job yet)")
    state.store.job_changed(after("x", name="y"))
    state.store.job_changed(
        make_job("y", status={"phase": "Cancelled"}, meta={"resourceVersion": "12"}, dependencies=[])
    )
    assert obstacle(state) == Obstacle(
        reason="DependencyFailed", message="A dependency cannot be met: y did not succeed"
    )


def test_those_that_wait_for_a_job_are_known() -> None:
    state = make_state(a=1)
    state.store.job_changed(after("first"))
    state.store.job_changed(after("first", "x", name="z"))
    assert state.store.dependencies.dependents_of("team/first") == ["team/x", "team/z"]
    state.store.job_deleted("team/z", uid="uid-z")
    state.store.job_changed(after(version=11))
    assert state.store.dependencies.dependents_of("team/first") == []


@pytest.mark.parametrize(("choice", "phase"), [("Cancel", "Cancelled"), ("Wait", "Queued")])
def test_a_job_whose_dependency_failed_is_cancelled_or_waits(choice: str, phase: str) -> None:
    state = make_state(a=1)
    state.store.job_changed(after("first", onDependencyFailure=choice))
    state.store.job_changed(make_job("first", status={"phase": "Failed"}))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    status = reconcile(seen).status
    assert (status.phase, status.reason, status.device) == (phase, "DependencyFailed", None)
    assert status.message == "A dependency cannot be met: first did not succeed"
    assert [each.state for each in status.dependencies] == ["Failed"]


def test_the_suspended_batch_job_of_one_that_is_cancelled_so_goes() -> None:
    state = make_state(a=1)
    job = after("first")
    state.store.job_changed(job)
    state.store.child_changed(make_child(job, suspend=True))
    state.store.job_changed(make_job("first", status={"phase": "Failed"}))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert reconcile(seen).actions == (DeleteJob(),)


def test_a_job_that_runs_minds_no_dependency() -> None:
    state = make_state(a=1)
    job = after("first")
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    state.store.job_changed(make_job("first", status={"phase": "Failed"}))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert reconcile(seen).status.phase == "Starting"


def test_a_job_that_is_over_stays_until_those_that_wait_for_it_have_noted_its_end() -> None:
    state = make_state(a=1)
    ended = {"number": 2, "phase": "Succeeded", "completionTime": at(-5)}
    state.store.job_changed(make_job("first", status=ended, ttlSecondsAfterFinished=0))
    state.store.job_changed(after("first"))
    seen = state.observe("team/first", now=NOW)
    assert seen is not None
    outcome = reconcile(seen)
    assert (outcome.actions, outcome.wake_at) == ((), NOW + timedelta(seconds=1))
    noted = [{"name": "first", "condition": "Succeeded", "state": "Met"}]
    state.store.job_changed(
        make_job(
            status={"number": 1, "dependencies": noted},
            dependencies=[{"name": "first"}],
            meta={"resourceVersion": "11"},
        )
    )
    seen = state.observe("team/first", now=NOW)
    assert seen is not None
    assert reconcile(seen).actions == (DeleteGPUJob(),)


@pytest.mark.parametrize("status", [{"phase": "Cancelled"}, {"dependencies": "Met"}, {"dependencies": "Failed"}])
def test_nobody_waits_who_has_ended_or_has_noted_it(status: dict[str, str]) -> None:
    state = make_state(a=1)
    if "dependencies" in status:
        noted = [{"name": "first", "condition": "Succeeded", "state": status["dependencies"]}]
        dependent = make_job(status={"number": 1, "dependencies": noted}, dependencies=[{"name": "first"}])
    else:
        dependent = make_job(status=status, dependencies=[{"name": "first"}])
    first = make_job("first", status={"phase": "Failed"})
    for job in (first, dependent):
        state.store.job_changed(job)
    assert not state.store.dependencies.is_awaited(first)


def array_after(*others: str, name: str = "arr", **spec: object) -> GPUJob:
    """An array of the tasks 0 to 3 that depends on these."""
    return after(*others, name=name, **({"array": {"indexes": "0-3"}} | spec))


CHANGE = "change or delete one of these jobs"


def test_an_array_that_waits_for_a_task_of_its_own_is_told_that_this_is_a_circle() -> None:
    state = make_state(a=1)
    state.store.job_changed(array_after("arr-t3"))
    told = f"The dependencies go round in a circle, arr → arr-t3 → arr (arr-t3 is a task of arr): {CHANGE}"
    assert obstacle(state, "arr") == Obstacle(reason="Invalid", message=told)
    state.store.job_changed(array_after("arr-t4", name="arr", version=11))
    assert obstacle(state, "arr") == Obstacle(
        reason="Dependency", message="Waits for arr-t4 to succeed (there is no such job yet)"
    )


def test_a_sweep_is_told_so_by_the_names_that_its_template_gives() -> None:
    state = make_state(a=1)
    sweep = {"parameters": [{"name": "lr", "values": ["0.1", "0.2"]}], "nameTemplate": "lr{lr}"}
    state.store.job_changed(after("arr-lr0-2", name="arr", sweep=sweep))
    found = obstacle(state, "arr")
    assert found is not None
    assert "arr → arr-lr0-2 → arr (arr-lr0-2 is a task of arr)" in found.message


@pytest.mark.parametrize("array_first", [True, False])
def test_a_circle_that_leads_over_a_task_is_told_to_the_array_and_to_the_job(array_first: bool) -> None:
    state = make_state(a=1)
    jobs = [array_after("x"), after("arr-t0")]
    for job in jobs if array_first else reversed(jobs):
        state.store.job_changed(job)
        obstacle(state, job.metadata.name)
    assert state.store.dependencies.take_news() == {"team/arr", "team/x"}
    for name, way in (("arr", "arr → x → arr-t0 → arr"), ("x", "x → arr-t0 → arr → x")):
        found = obstacle(state, name)
        assert found is not None
        assert found.message == f"The dependencies go round in a circle, {way} (arr-t0 is a task of arr): {CHANGE}"


def test_a_job_that_waits_for_a_task_of_an_array_that_can_begin_is_in_no_circle() -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job("first", status={"phase": "Running"}))
    state.store.job_changed(array_after("first"))
    state.store.job_changed(after("arr-t0"))
    assert obstacle(state) == Obstacle(
        reason="Dependency", message="Waits for arr-t0 to succeed (there is no such job yet)"
    )


def test_a_circle_over_a_task_ends_once_a_job_of_that_name_is_there_and_is_one_again_when_the_task_goes() -> None:
    state = make_state(a=1)
    state.store.job_changed(array_after("x"))
    state.store.job_changed(after("arr-t0"))
    assert getattr(obstacle(state), "reason", None) == "Invalid"
    task = make_job("arr-t0", status={"phase": "Running"}, meta={"labels": {"dovetail.dev/array": "arr"}})
    state.store.job_changed(task)
    assert obstacle(state) == Obstacle(reason="Dependency", message="Waits for arr-t0 to succeed")
    assert obstacle(state, "arr") == Obstacle(reason="Dependency", message="Waits for job 1 (x) to succeed")
    state.store.job_deleted("team/arr-t0", uid="uid-arr-t0")
    assert getattr(obstacle(state), "reason", None) == "Invalid"


def circle(state: State, first: str, second: str) -> None:
    state.store.job_changed(after(second, name=first))
    state.store.job_changed(after(first, name=second))


def test_a_circle_that_opens_is_news_to_its_own_jobs_and_to_no_other() -> None:
    state = make_state(a=1)
    circle(state, "a", "b")
    circle(state, "c", "d")
    assert state.store.dependencies.take_news() == {"team/a", "team/b", "team/c", "team/d"}
    state.store.job_deleted("team/a", uid="uid-a")
    assert state.store.dependencies.take_news() == {"team/a", "team/b"}


def test_a_job_that_needs_any_of_several_is_in_no_circle_once_one_of_them_has_succeeded() -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job("done", status={"phase": "Running"}))
    state.store.job_changed(after("done", "b", name="a", dependencyPolicy="Any"))
    state.store.job_changed(after("a", name="b"))
    state.store.job_changed(make_job("done", status={"phase": "Succeeded"}, meta={"resourceVersion": "12"}))
    assert obstacle(state, "a") is None
    assert obstacle(state, "b") == Obstacle(reason="Dependency", message="Waits for job 1 (a) to succeed")
    assert state.store.dependencies.take_news() == set()


def test_a_job_that_others_wait_for_and_that_is_in_no_circle_is_no_news_when_it_goes() -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job("first"))
    state.store.job_changed(after("first", name="second"))
    state.store.dependencies.take_news()
    state.store.job_deleted("team/first", uid="uid-first")
    assert state.store.dependencies.take_news() == set()
    assert state.store.dependencies.dependents_of("team/first") == ["team/second"]
    state.store.job_deleted("team/second", uid="uid-second")
    assert state.store.dependencies.dependents_of("team/first") == []


@pytest.mark.parametrize(
    ("dependent", "awaited"),
    [
        pytest.param({}, True, id="it waits"),
        pytest.param({"phase": "Cancelled"}, False, id="it is over"),
        pytest.param(
            {"dependencies": [{"name": "first", "condition": "Succeeded", "state": "Met"}]},
            False,
            id="it has noted the end",
        ),
        pytest.param(
            {"dependencies": [{"name": "first", "condition": "Succeeded", "state": "Waiting"}]},
            True,
            id="it has noted an earlier state",
        ),
    ],
)
def test_an_ended_job_is_kept_until_its_dependents_have_noted_its_end(dependent: dict[str, Any], awaited: bool) -> None:
    state = make_state(a=1)
    first = make_job("first", status={"phase": "Succeeded"})
    state.store.job_changed(first)
    state.store.job_changed(make_job("second", status=dependent, dependencies=[{"name": "first"}]))
    assert state.store.dependencies.is_awaited(first) is awaited
