"""A GPUJob counts as a task of an array only where its namespace, label, owner and name all say so."""

import dataclasses
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.arrays.task_index import TaskIndex
from dovetail_operator.job.actions import CreateTask
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from tests.containers import items_by_attribute
from tests.operator_.arrays.test_array_status import make_task
from tests.operator_.builders import make_job, make_state, see

PARENT = make_job(array={"indexes": "0-1"})
OWNER = {
    "apiVersion": "dovetail.dev/v1beta1",
    "kind": "GPUJob",
    "name": "x",
    "uid": "uid-x",
    "controller": True,
    "blockOwnerDeletion": True,
}
FORGERIES: dict[str, dict[str, Any]] = {
    "another namespace": {"namespace": "attackers"},
    "another name": {"name": "x-t7"},
    "the name of another index": {"name": "x-t0"},
    "no index": {"labels": {"dovetail.dev/array": "x"}},
    "an index of 63 digits": {"labels": {"dovetail.dev/array": "x", "dovetail.dev/task": "1" * 63}},
    "no label": {"labels": {"dovetail.dev/task": "1"}},
    "another array's label": {"labels": {"dovetail.dev/array": "y", "dovetail.dev/task": "1"}},
    "no owner": {"ownerReferences": []},
    "an owner that does not control it": {"ownerReferences": [OWNER | {"controller": False}]},
    "an owner of another kind": {"ownerReferences": [OWNER | {"kind": "Job"}]},
    "an owner of another group": {"ownerReferences": [OWNER | {"apiVersion": "example.org/v1"}]},
    "an owner of another name": {"ownerReferences": [OWNER | {"name": "y"}]},
    "the array of that name before": {"ownerReferences": [OWNER | {"uid": "uid-before"}]},
}


def forged(**meta: Any) -> GPUJob:
    """A GPUJob that has failed and is the array's second task but for what `meta` says."""
    return make_task(PARENT, 1, phase="Failed", meta={"uid": "uid-forged", "resourceVersion": "12", **meta})


def told(*others: GPUJob) -> Outcome:
    """What the operator makes of the array beside these."""
    state = make_state(a=1)
    for job in (PARENT, *others):
        state.store.job_changed(job)
    state.decisions.set_number("uid-x", number=1)
    seen = state.observe("team/x", now=see(PARENT).now)
    assert seen is not None
    return reconcile(seen)


def created(outcome: Outcome) -> list[str]:
    return [each.manifest["metadata"]["name"] for each in outcome.actions if isinstance(each, CreateTask)]


def test_the_very_task_counts() -> None:
    assert created(told(forged())) == ["x-t0"]


@pytest.mark.parametrize("meta", FORGERIES.values(), ids=FORGERIES.keys())
def test_what_is_not_of_the_array_counts_for_nothing_in_it(meta: dict[str, Any]) -> None:
    outcome = told(forged(**meta))
    assert outcome.status.tasks is not None
    assert (outcome.status.tasks.failed, outcome.status.phase) == (0, "Queued")


def test_a_stranger_of_another_namespace_keeps_no_task_from_being_made() -> None:
    assert created(told(forged(namespace="attackers"), forged(namespace="attackers", name="x-t0"))) == ["x-t0", "x-t1"]


def test_a_stranger_with_a_task_s_name_is_named_and_the_others_are_made() -> None:
    outcome = told(forged(ownerReferences=[]))
    assert created(outcome) == ["x-t0"]
    assert outcome.status.message == (
        "Its tasks are about to be made; task 1 is not made: A GPUJob named x-t1 exists and is no task of this job: "
        "delete it, or submit this job under another name"
    )


def test_an_array_that_strangers_keep_from_every_task_says_so() -> None:
    outcome = told(make_job("x-t0"), make_job("x-t1"))
    assert (outcome.actions, outcome.status.phase, outcome.status.reason) == ((), "Queued", "Invalid")
    assert outcome.status.message.startswith("Task 0 is not made: A GPUJob named x-t0 exists")


def test_a_task_of_the_array_of_that_name_before_is_waited_for() -> None:
    outcome = told(forged(ownerReferences=[OWNER | {"uid": "uid-before"}]))
    assert "task 1 is not made: Waiting for task x-t1 of an earlier job of this name to go" in outcome.status.message


def test_a_stranger_in_the_way_uses_up_no_place_of_those_at_a_time() -> None:
    state = make_state(a=1)
    for job in (one := make_job(array={"indexes": "0-1", "parallelism": 1}), make_job("x-t0")):
        state.store.job_changed(job)
    state.decisions.set_number("uid-x", number=1)
    seen = state.observe("team/x", now=see(one).now)
    assert seen is not None
    assert created(reconcile(seen)) == ["x-t1"]


def test_what_an_array_waits_for_is_known_until_it_is_gone() -> None:
    index, stranger = TaskIndex(), make_job("x-t1")
    assert set(index.in_the_way(PARENT, jobs={"team/x-t1": stranger, "team/x": PARENT})) == {"x-t1"}
    assert (index.waiting_for("team/x-t1"), index.waiting_for("team/x-t0")) == ("team/x", None)
    assert index.in_the_way(PARENT, jobs={"team/x": PARENT}) == {}
    assert index.waiting_for("team/x-t1") is None


def test_a_task_whose_label_is_taken_off_is_no_task_any_more() -> None:
    index, task = TaskIndex(), forged()
    index.observe(task)
    assert index.tasks_of(PARENT) == (task,)
    index.observe(msgspec.structs.replace(task, metadata=msgspec.structs.replace(task.metadata, labels={})))
    assert index.tasks_of(PARENT) == ()
    index.drop(task)
    assert index.tasks_of(PARENT) == ()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_end_of_a_task_is_noted_before_its_job_may_go(phase: str) -> None:
    index, task = TaskIndex(), make_task(PARENT, 1, phase=phase)
    assert index.is_unnoted(task, parent=PARENT)
    noted = msgspec.structs.replace(PARENT, status=reconcile(dataclasses.replace(see(PARENT), tasks=(task,))).status)
    assert not index.is_unnoted(task, parent=noted)
    assert not index.is_unnoted(forged(name="x-t9"), parent=PARENT)


def test_a_task_that_came_between_is_no_obstacle_of_the_next_look() -> None:
    seen = dataclasses.replace(see(PARENT), in_the_way={"x-t0": Obstacle(message="A GPUJob named x-t0 exists")})
    both = dataclasses.replace(seen, tasks=(make_task(PARENT, 0, phase="Succeeded"), make_task(PARENT, 1)))
    assert "is not made" not in reconcile(both).status.message


def test_an_array_that_is_gone_waits_for_no_name() -> None:
    """And an array that has come under its name is not woken by what it does not wait for."""
    index, stranger = TaskIndex(), make_job("x-t1")
    other = make_job("y", array={"indexes": "0-1"})
    for parent in (PARENT, other):
        index.in_the_way(parent, jobs={"team/x-t1": stranger, "team/y-t0": make_job("y-t0")})
    assert (index.waiting_for("team/x-t1"), index.waiting_for("team/y-t0")) == ("team/x", "team/y")
    index.drop(PARENT)
    assert (index.waiting_for("team/x-t1"), index.waiting_for("team/y-t0")) == (None, "team/y")
    index.drop(other)
    assert +items_by_attribute(index) == {}
