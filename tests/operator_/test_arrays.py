"""Arrays and sweeps: which tasks there are, which come next, and what is told of them."""

import dataclasses
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import find_condition
from dovetail.indexes import IndexesError, as_text, indexes_in
from dovetail_operator import arrays
from dovetail_operator.actions import Action, ChangeTask, CreateTask
from dovetail_operator.observed import Obstacle, wants_admission
from dovetail_operator.reconcile import Outcome, reconcile
from dovetail_operator.tasks import TasksError, manifest_of, tasks_of
from tests.operator_.builders import at, make_job, make_state, see


def seen_with(parent: GPUJob, *tasks: GPUJob, **more: Any) -> Outcome:
    return reconcile(dataclasses.replace(see(parent, **more), tasks=tasks))


def make_task(parent: GPUJob, index: int, *, phase: str | None = None, **spec: Any) -> GPUJob:
    task = next(each for each in tasks_of(parent) if each.index == index)
    manifest = manifest_of(task, parent=parent)
    manifest["metadata"] |= {"uid": f"uid-{task.name}", **spec.pop("meta", {})}
    manifest["spec"] |= spec
    status = {"phase": phase, "gpus": 1, "startTime": at(-60)} if phase else {}
    if phase in {"Succeeded", "Failed"}:
        status["completionTime"] = at(-5)
    return msgspec.convert(manifest | {"status": status}, GPUJob)


def created(outcome: Outcome) -> list[str]:
    return [each.manifest["metadata"]["name"] for each in outcome.actions if isinstance(each, CreateTask)]


def changed(outcome: Outcome) -> list[tuple[str, dict[str, Any]]]:
    def read(action: Action) -> tuple[str, dict[str, Any]]:
        assert isinstance(action, ChangeTask)
        return action.task.metadata.name, dict(action.spec)

    return [read(each) for each in outcome.actions]


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("0-8:4", [0, 4, 8]),
        ("7", [7]),
        ("1,3,7-9", [1, 3, 7, 8, 9]),
        ("3,1-3%2", [1, 2, 3]),
        ("5-5", [5]),
    ],
)
def test_indexes(text: str, indexes: list[int]) -> None:
    assert indexes_in(text) == indexes


@pytest.mark.parametrize(
    ("text", "says"), [("5-3", "5-3 ends before it starts, write 3-5"), ("0-5000", "1000 are allowed")]
)
def test_indexes_that_cannot_be_are_named(text: str, says: str) -> None:
    with pytest.raises(IndexesError, match=says):
        indexes_in(text)
    status = seen_with(make_job(array={"indexes": text})).status
    assert (status.phase, status.reason) == ("Queued", "Invalid")
    assert says in status.message


@pytest.mark.parametrize("indexes", [[], [0], [0, 1, 2], [0, 2, 3, 9], [5, 4, 1]])
def test_indexes_in_short_are_read_as_what_they_were(indexes: list[int]) -> None:
    assert (indexes_in(as_text(indexes)) if indexes else []) == sorted(indexes)


def test_the_tasks_are_jobs_of_their_own_with_their_index_and_nothing_that_the_array_waits_for() -> None:
    parent = make_job(
        array={"indexes": "0-9:3"},
        priority=50,
        dependencies=[{"name": "before"}],
        meta={"labels": {"team": "vision"}, "annotations": {"dovetail.dev/user": "ann", "note": "x"}},
    )
    task = manifest_of(tasks_of(parent)[1], parent=parent)
    assert task["metadata"]["name"] == "x-t3"
    assert task["metadata"]["labels"] == {"team": "vision", "dovetail.dev/array": "x", "dovetail.dev/task": "3"}
    assert task["metadata"]["annotations"] == {"dovetail.dev/user": "ann"}
    assert task["metadata"]["ownerReferences"][0]["uid"] == "uid-x"
    assert task["spec"]["priority"] == 50
    assert not {"array", "dependencies"} & task["spec"].keys()
    env = {each["name"]: each["value"] for each in task["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env == {"DOVETAIL_ARRAY_TASK_ID": "3", "GFLOW_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_ID": "3"}


SWEEP = {"parameters": [{"name": "lr", "values": ["0.1", "1"]}, {"name": "bs", "values": ["32", "64"]}]}


def sweep(**more: Any) -> GPUJob:
    container = {"name": "main", "command": ["train", "--lr={lr}", "${bs} {bs} {other}"]}
    return make_job(sweep={**SWEEP, **more}, template={"spec": {"containers": [container]}})


def test_a_sweep_takes_each_value_with_each() -> None:
    assert [dict(task.parameters) for task in tasks_of(sweep())] == [
        {"lr": "0.1", "bs": "32"},
        {"lr": "0.1", "bs": "64"},
        {"lr": "1", "bs": "32"},
        {"lr": "1", "bs": "64"},
    ]


def test_a_zip_takes_the_values_side_by_side() -> None:
    assert [dict(task.parameters) for task in tasks_of(sweep(combine="Zip"))] == [
        {"lr": "0.1", "bs": "32"},
        {"lr": "1", "bs": "64"},
    ]


def test_parameters_stand_in_commands_and_in_the_environment() -> None:
    parent = sweep()
    (container,) = manifest_of(tasks_of(parent)[1], parent=parent)["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["train", "--lr=0.1", "${bs} 64 {other}"]
    assert {"name": "bs", "value": "64"} in container["env"]


def test_a_name_template_calls_the_tasks() -> None:
    assert [task.name for task in tasks_of(sweep(nameTemplate="lr{lr}_b{bs}"))] == [
        "x-lr0-1-b32", "x-lr0-1-b64", "x-lr1-b32", "x-lr1-b64",
    ]  # fmt: skip


def test_a_name_template_that_gives_two_tasks_one_name_is_refused() -> None:
    with pytest.raises(TasksError, match="tasks 0 and 1 the same name x-0-1: name every parameter"):
        tasks_of(sweep(nameTemplate="{lr}"))


def test_a_sweep_beyond_the_limit_is_refused_before_it_is_made() -> None:
    many = [{"name": name, "values": [str(at) for at in range(100)]} for name in "abcdefgh"]
    with pytest.raises(TasksError, match="1000 are allowed"):
        tasks_of(make_job(sweep={"parameters": many}))


def test_as_many_tasks_are_made_as_may_be_under_way() -> None:
    parent = make_job(array={"indexes": "0-9%3"})
    assert created(seen_with(parent)) == ["x-t0", "x-t1", "x-t2"]
    assert created(seen_with(parent, make_task(parent, 1), make_task(parent, 0, phase="Succeeded"))) == ["x-t2", "x-t3"]


NOTED = {"total": 3, "succeededIndexes": "0", "failedIndexes": "2"}


def test_a_task_whose_end_was_noted_does_not_come_again_when_it_is_gone() -> None:
    parent = make_job(array={"indexes": "0-2"}, status={"tasks": NOTED})
    assert created(seen_with(parent)) == ["x-t1"]


def test_the_status_adds_up_what_became_of_the_tasks() -> None:
    parent = make_job(array={"indexes": "0-4"})
    outcome = seen_with(
        parent,
        make_task(parent, 0, phase="Succeeded"),
        make_task(parent, 1, phase="Failed"),
        make_task(parent, 2, phase="Running"),
        make_task(parent, 3, phase="Queued"),
        make_task(parent, 4),
    )
    tasks = outcome.status.tasks
    assert tasks is not None
    assert (tasks.total, tasks.waiting, tasks.running, tasks.succeeded, tasks.failed) == (5, 2, 1, 1, 1)
    assert (tasks.succeeded_indexes, tasks.failed_indexes) == ("0", "1")
    assert (outcome.status.phase, outcome.status.gpus) == ("Running", 1)
    assert outcome.status.message == "1 of 5 tasks run, 2 have ended, 2 wait"


def test_when_all_have_ended_well_the_array_is_complete() -> None:
    parent = make_job(array={"indexes": "0-1"})
    status = seen_with(parent, make_task(parent, 0, phase="Succeeded"), make_task(parent, 1, phase="Succeeded")).status
    assert status.phase == "Succeeded"
    assert find_condition(status.conditions, "Complete") is not None
    assert (status.start_time, status.completion_time, status.elapsed) == (at(-60), at(-5), "55s")


def test_when_one_has_failed_the_array_has_and_says_which() -> None:
    parent = make_job(array={"indexes": "0-1"})
    status = seen_with(parent, make_task(parent, 0, phase="Succeeded"), make_task(parent, 1, phase="Failed")).status
    assert (status.phase, status.reason, status.message) == ("Failed", "TasksFailed", "1 of 2 tasks failed: 1")
    assert find_condition(status.conditions, "Failed") is not None


def test_a_cancelled_array_cancels_its_tasks_and_ends_after_them() -> None:
    parent = make_job(array={"indexes": "0-1"}, cancel=True)
    outcome = seen_with(parent, make_task(parent, 0, phase="Running", cancel=False))
    assert changed(outcome) == [("x-t0", {"cancel": True})]
    assert outcome.status.phase == "Running"
    assert seen_with(parent, make_task(parent, 0, phase="Cancelled")).status.phase == "Cancelled"


def test_a_held_array_holds_its_tasks_and_lets_go_those_that_it_held() -> None:
    parent = make_job(array={"indexes": "0-2"}, suspend=True)
    outcome = seen_with(parent, make_task(parent, 0, phase="Running"), make_task(parent, 1, suspend=True))
    assert changed(outcome) == [("x-t0", {"suspend": True})]
    assert outcome.status.phase == "Suspended"
    let_go = make_job(array={"indexes": "0-1"})
    ours = make_task(let_go, 0, suspend=True, meta={"annotations": {"dovetail.dev/held-with-array": "true"}})
    theirs = make_task(let_go, 1, suspend=True)
    assert changed(seen_with(let_go, ours, theirs)) == [("x-t0", {"suspend": False})]


def test_an_array_that_waits_for_another_job_makes_no_task() -> None:
    parent = make_job(array={"indexes": "0-2"})
    outcome = seen_with(parent, obstacle=Obstacle(reason="Dependency", message="Waits for before"))
    assert outcome.actions == ()
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "Dependency")


def test_an_array_asks_for_no_room_itself() -> None:
    assert not wants_admission(make_job(array={"indexes": "0-2"}), None)


def test_the_end_of_a_task_is_noted_before_its_job_may_go() -> None:
    parent = make_job(array={"indexes": "0-1"})
    task = make_task(parent, 1, phase="Succeeded")
    assert arrays.has_to_note(parent, task)
    noted = msgspec.structs.replace(parent, status=seen_with(parent, task).status)
    assert not arrays.has_to_note(noted, task)


def test_the_state_finds_the_tasks_of_an_array_and_no_others() -> None:
    state = make_state(a=1)
    parent = make_job(array={"indexes": "0-1"})
    other = make_job("other", array={"indexes": "0-1"})
    for job in (parent, other, make_task(parent, 0, meta={"resourceVersion": "11"}), make_job("x-7")):
        state.put_job(job)
    seen = state.observe("team/x", now=see(parent).now)
    assert seen is not None
    assert [task.metadata.name for task in seen.tasks] == ["x-t0"]
    (task,) = seen.tasks
    state.drop_job("team/x-t0", uid=task.metadata.uid)
    gone = state.observe("team/x", now=see(parent).now)
    assert gone is not None
    assert gone.tasks == ()


def test_a_task_that_has_ended_is_awaited_until_the_array_has_noted_it() -> None:
    state = make_state(a=1)
    parent = make_job(array={"indexes": "0-1"})
    state.put_job(parent)
    state.put_job(make_task(parent, 0, phase="Succeeded", meta={"resourceVersion": "11"}))
    seen = state.observe("team/x-t0", now=see(parent).now)
    assert seen is not None
    assert seen.awaited is True
