"""Arrays and sweeps: which tasks there are, which come next, and what is told of them."""

import dataclasses
import random
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, Placement, PlannedWorker, job_of
from dovetail.api.meta import find_condition
from dovetail.jobs.array_indexes import IndexesError, as_text, indexes_in
from dovetail.jobs.array_tasks import TasksError, tasks_of
from dovetail.jobs.batch_job import wants_admission
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.arrays.task_manifest import manifests_of
from dovetail_operator.job.actions import Action, ChangeTask, CreateTask
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from dovetail_operator.manifests.rendezvous import environment
from tests.operator_.builders import at, make_job, make_state, see


def seen_with(parent: GPUJob, *tasks: GPUJob, **more: Any) -> Outcome:
    return reconcile(dataclasses.replace(see(parent, **more), tasks=tasks))


def make_task(parent: GPUJob, index: int, *, phase: str | None = None, **spec: Any) -> GPUJob:
    task = next(each for each in tasks_of(parent) if each.index == index)
    manifest = manifests_of([task], parent=parent, number=7)[0]
    manifest["metadata"] |= {"uid": f"uid-{task.name}", **spec.pop("meta", {})}
    manifest["spec"] |= spec
    status = {"phase": phase, "gpus": 1, "startTime": at(-60)} if phase else {}
    if phase in {"Succeeded", "Failed"}:
        status["completionTime"] = at(-5)
    return job_of(manifest | {"status": status})


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
    task = manifests_of([tasks_of(parent)[1]], parent=parent, number=7)[0]
    assert task["metadata"]["name"] == "x-t3"
    assert task["metadata"]["labels"] == {"team": "vision", "dovetail.dev/array": "x", "dovetail.dev/task": "3"}
    assert task["metadata"]["annotations"].keys() == {"dovetail.dev/user", "dovetail.dev/as-array-says"}
    assert task["metadata"]["ownerReferences"][0]["uid"] == "uid-x"
    assert task["spec"]["priority"] == 50
    assert not {"array", "dependencies"} & task["spec"].keys()
    env = {each["name"]: each["value"] for each in task["spec"]["template"]["spec"]["containers"][0]["env"]}
    index = {"DOVETAIL_ARRAY_TASK_ID": "3", "GFLOW_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_ID": "3"}
    assert env == index | {"DOVETAIL_ARRAY_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7"}


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
    (container,) = manifests_of([tasks_of(parent)[1]], parent=parent, number=7)[0]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["command"] == ["train", "--lr=0.1", "${bs} 64 {other}"]
    assert {"name": "bs", "value": "64"} in container["env"]


def test_a_name_template_calls_the_tasks() -> None:
    assert [task.name for task in tasks_of(sweep(nameTemplate="lr{lr}_b{bs}"))] == [
        "x-lr0-1-b32", "x-lr0-1-b64", "x-lr1-b32", "x-lr1-b64",
    ]  # fmt: skip


def test_a_name_template_that_gives_two_tasks_one_name_is_refused() -> None:
    with pytest.raises(TasksError, match="tasks 0 and 1 the same name x-0-1: name every parameter"):
        tasks_of(sweep(nameTemplate="{lr}"))


def one_parameter(*values: str, **more: Any) -> GPUJob:
    container = {"name": "main", "command": ["echo", "{lr}", "{bs}"]}
    parameters = [{"name": "lr", "values": list(values)}]
    return make_job(sweep={"parameters": parameters, **more}, template={"spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("values", "template", "names"),
    [
        (("", " ", "ü"), "{lr}", ["x-t0", "x-t1", "x-t2"]),
        (("日本", "a"), "{index}-{lr}", ["x-0", "x-1-a"]),
        (("a", "b"), "{index}" + "-" * 70 + "{lr}", ["x-0-a", "x-1-b"]),
        (("a", "b"), "{index}" + "y" * 54 + "-{lr}", ["x-0" + "y" * 54, "x-1" + "y" * 54]),
    ],
)
def test_whatever_a_template_gives_the_tasks_have_names_that_jobs_can_have(
    values: tuple[str, ...], template: str, names: list[str]
) -> None:
    assert [task.name for task in tasks_of(one_parameter(*values, nameTemplate=template))] == names


def test_values_that_only_differ_in_what_no_name_can_have_are_told_what_helps() -> None:
    with pytest.raises(TasksError, match=r"the same name x-va: name every parameter in it, or begin it with \{index\}"):
        tasks_of(one_parameter("a", "A", nameTemplate="v{lr}"))


def test_a_value_that_looks_like_a_parameter_is_left_as_it_is() -> None:
    parameters = [{"name": "lr", "values": ["{bs}", r"a\1"]}, {"name": "bs", "values": ["9"]}]
    parent = make_job(sweep={"parameters": parameters}, template=one_parameter("1").spec.template)
    commands = [
        manifests_of([task], parent=parent, number=7)[0]["spec"]["template"]["spec"]["containers"][0]["command"]
        for task in tasks_of(parent)
    ]
    assert commands == [["echo", "{bs}", "9"], ["echo", r"a\1", "9"]]


@pytest.mark.parametrize("value", ["$(HOME)", "a$$b", "${x}", "$"])
def test_a_value_arrives_as_it_was_written_whatever_kubernetes_reads_in_it(value: str) -> None:
    parent = one_parameter(value)
    (container,) = manifests_of([tasks_of(parent)[0]], parent=parent, number=7)[0]["spec"]["template"]["spec"][
        "containers"
    ]
    env = {each["name"]: each["value"] for each in container["env"]}
    # As kubelet does: $$ is $, and without it nothing is left that it could read.
    assert [text.replace("$$", "\0").count("$") for text in (env["lr"], container["command"][1])] == [0, 0]
    assert env["lr"].replace("$$", "$") == container["command"][1].replace("$$", "$") == value


@pytest.mark.parametrize("args", ["--lr={lr}", ["--lr", 1, None]])
def test_a_command_that_is_none_stays_for_the_api_server_to_refuse(args: Any) -> None:
    template = {"spec": {"containers": [{"name": "main", "args": args}]}}
    parent = make_job(sweep={"parameters": [{"name": "lr", "values": ["1"]}]}, template=template)
    (container,) = manifests_of([tasks_of(parent)[0]], parent=parent, number=7)[0]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["args"] == args


def test_what_workers_find_each_other_by_is_no_parameter_of_a_gang() -> None:
    alone = make_job(sweep={"parameters": [{"name": "RANK", "values": ["8", "16"]}]})
    assert len(tasks_of(alone)) == 2
    for framework in ("PyTorch", "TensorFlow", "MPI"):
        distributed = {"framework": framework}
        gang = make_job(workers=2, distributed=distributed)
        for variable in environment(gang, gpus=1):
            parameters = [{"name": variable["name"], "values": ["1"]}]
            with pytest.raises(TasksError, match="a variable that Dovetail sets itself"):
                tasks_of(make_job(workers=2, distributed=distributed, sweep={"parameters": parameters}))


@pytest.mark.parametrize("name", ["SLURM_ARRAY_TASK_ID", "CUDA_VISIBLE_DEVICES", "DOVETAIL_JOB_ID"])
def test_a_parameter_that_is_called_like_a_variable_of_ours_is_refused(name: str) -> None:
    status = seen_with(make_job(sweep={"parameters": [{"name": name, "values": ["1"]}]})).status
    told = f"sweep parameter {name} is a variable that Dovetail sets itself: give it another name"
    assert (status.reason, status.message) == ("Invalid", told)


def test_a_name_template_that_names_no_parameter_is_refused() -> None:
    status = seen_with(sweep(nameTemplate="{index}-{rate}")).status
    assert (status.phase, status.reason) == ("Queued", "Invalid")
    assert status.message == 'sweep.nameTemplate "{index}-{rate}" names {rate}, which is none of {bs}, {index}, {lr}'


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
    assert outcome.status.message == "1 of 5 tasks runs, 2 have ended, 2 wait"


def test_when_all_have_ended_well_the_array_is_complete() -> None:
    parent = make_job(array={"indexes": "0-1"})
    status = seen_with(parent, make_task(parent, 0, phase="Succeeded"), make_task(parent, 1, phase="Succeeded")).status
    assert status.phase == "Succeeded"
    assert find_condition(status.conditions, type="Complete") is not None
    assert (status.start_time, status.completion_time, status.elapsed) == (at(-60), at(-5), "55s")


def test_when_one_has_failed_the_array_has_and_says_which() -> None:
    parent = make_job(array={"indexes": "0-1"})
    status = seen_with(parent, make_task(parent, 0, phase="Succeeded"), make_task(parent, 1, phase="Failed")).status
    assert (status.phase, status.reason, status.message) == ("Failed", "TasksFailed", "1 of 2 tasks failed: 1")
    assert find_condition(status.conditions, type="Failed") is not None


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
    assert not wants_admission(make_job(array={"indexes": "0-2"}), child=None)


def test_the_state_finds_the_tasks_of_an_array_and_no_others() -> None:
    state = make_state(a=1)
    parent = make_job(array={"indexes": "0-1"})
    other = make_job("other", array={"indexes": "0-1"})
    for job in (parent, other, make_task(parent, 0, meta={"resourceVersion": "11"}), make_job("x-7")):
        state.store.job_changed(job)
    seen = state.observe("team/x", now=see(parent).now)
    assert seen is not None
    assert [task.metadata.name for task in seen.tasks] == ["x-t0"]
    (task,) = seen.tasks
    state.store.job_deleted("team/x-t0", uid=task.metadata.uid)
    gone = state.observe("team/x", now=see(parent).now)
    assert gone is not None
    assert gone.tasks == ()


def test_a_task_that_has_ended_is_awaited_until_the_array_has_noted_it() -> None:
    state = make_state(a=1)
    parent = make_job(array={"indexes": "0-1"})
    state.store.job_changed(parent)
    state.store.job_changed(make_task(parent, 0, phase="Succeeded", meta={"resourceVersion": "11"}))
    seen = state.observe("team/x-t0", now=see(parent).now)
    assert seen is not None
    assert seen.awaited is True


def told_with(parent: GPUJob, *tasks: GPUJob) -> list[tuple[str, dict[str, Any]]]:
    outcome = seen_with(parent, *tasks)
    return changed(dataclasses.replace(outcome, actions=tuple(a for a in outcome.actions if isinstance(a, ChangeTask))))


def test_what_changes_in_the_array_changes_in_its_tasks_that_wait_or_run() -> None:
    before = make_job(array={"indexes": "0-2"}, priority=10, activeDeadlineSeconds=60)
    tasks = [make_task(before, 0, phase="Running"), make_task(before, 1, phase="Queued")]
    assert told_with(before, *tasks) == []
    after = make_job(array={"indexes": "0-2"}, priority=90, activeDeadlineSeconds=None)
    wanted = {"priority": 90, "activeDeadlineSeconds": None}
    assert told_with(after, *tasks) == [("x-t0", wanted), ("x-t1", wanted)]


def test_a_task_that_was_told_is_not_told_again() -> None:
    parent = make_job(array={"indexes": "0-1"}, priority=10)
    task = make_task(parent, 0, phase="Queued")
    after = make_job(array={"indexes": "0-1"}, priority=90)
    (change,) = (each for each in seen_with(after, task).actions if isinstance(each, ChangeTask))
    annotations = {name: value for name, value in change.annotations.items() if value is not None}
    assert told_with(after, make_task(parent, 0, phase="Queued", priority=90, meta={"annotations": annotations})) == []


def test_a_field_that_was_changed_in_one_task_alone_stays_until_the_array_changes_it() -> None:
    parent = make_job(array={"indexes": "0-1"}, priority=10)
    own = make_task(parent, 0, phase="Queued", priority=50)
    assert told_with(parent, own) == []
    limited = make_job(array={"indexes": "0-1"}, priority=10, backoffLimit=3)
    assert told_with(limited, own) == [("x-t0", {"backoffLimit": 3})]
    raised = make_job(array={"indexes": "0-1"}, priority=70)
    assert told_with(raised, own) == [("x-t0", {"priority": 70})]


@pytest.mark.parametrize("annotation", [None, "what somebody wrote", "{}"])
def test_a_task_that_does_not_know_what_its_array_said_follows_it(annotation: str | None) -> None:
    parent = make_job(array={"indexes": "0-1"}, priority=70)
    annotations = {} if annotation is None else {"dovetail.dev/as-array-says": annotation}
    old = make_task(parent, 0, phase="Queued", priority=10, meta={"annotations": annotations})
    assert told_with(parent, old) == [("x-t0", {"priority": 70})]


def test_fewer_tasks_at_a_time_hold_back_those_that_wait_and_end_none_that_runs() -> None:
    wide = make_job(array={"indexes": "0-5", "parallelism": 4})
    tasks = [make_task(wide, 0, phase="Queued"), make_task(wide, 1, phase="Running"), make_task(wide, 2)]
    narrow = make_job(array={"indexes": "0-5", "parallelism": 2})
    assert told_with(narrow, *tasks) == [("x-t2", {"suspend": True})]
    assert created(seen_with(narrow, *tasks)) == []
    assert told_with(make_job(array={"indexes": "0-5%1"}), *tasks) == [
        ("x-t0", {"suspend": True}),
        ("x-t2", {"suspend": True}),
    ]


def test_tasks_that_were_held_back_go_on_before_new_ones_are_made() -> None:
    parent = make_job(array={"indexes": "0-5", "parallelism": 2})
    back = {"annotations": {"dovetail.dev/held-with-array": "parallelism"}}
    tasks = [make_task(parent, 1, phase="Running"), make_task(parent, 2, phase="Held", suspend=True, meta=back)]
    assert told_with(parent, *tasks) == [("x-t2", {"suspend": False})]
    assert created(seen_with(parent, *tasks)) == []
    wider = make_job(array={"indexes": "0-5", "parallelism": 3})
    assert created(seen_with(wider, *tasks)) == ["x-t0"]


def test_a_task_that_somebody_holds_leaves_its_turn_to_the_next() -> None:
    parent = make_job(array={"indexes": "0-2", "parallelism": 1})
    held = make_task(parent, 0, phase="Held", suspend=True)
    assert created(seen_with(parent, held)) == ["x-t1"]
    outcome = seen_with(parent, held, make_task(parent, 1, phase="Queued"))
    assert outcome.status.reason == "Evaluating"
    assert "task 1" in outcome.status.message


def test_a_task_says_why_its_array_holds_it() -> None:
    parent = make_job(array={"indexes": "0-2", "parallelism": 1})
    for why, says in [("true", "Held with its array x: release"), ("parallelism", "as many tasks under way as")]:
        meta = {"annotations": {"dovetail.dev/held-with-array": why}}
        task = make_task(parent, 0, suspend=True, meta=meta)
        assert says in reconcile(see(task)).status.message


def test_no_more_tasks_are_under_way_than_the_array_allows_whatever_comes_when() -> None:
    """Told and made again and again, with the parallelism changed in between, until all have ended."""
    rng = random.Random(7)
    for _ in range(20):
        tasks: dict[str, GPUJob] = {}
        ended = 0
        for _step in range(60):
            allowed = rng.choice([1, 2, 4])
            parent = make_job(array={"indexes": "0-7", "parallelism": allowed})
            begun_before = {name for name, each in tasks.items() if each.status.phase == "Running"}
            for action in seen_with(parent, *tasks.values()).actions:
                _apply(action, tasks, parent=parent)
            free = [each for each in tasks.values() if each.status.phase is None and not each.spec.suspend]
            for each in free:
                tasks[each.metadata.name] = _in_phase(each, "Running")
            runs = [name for name, each in tasks.items() if each.status.phase == "Running"]
            assert len(runs) <= max(allowed, len(begun_before))
            if runs and rng.random() < 0.5:
                name = rng.choice(runs)
                tasks[name] = _in_phase(tasks[name], "Succeeded")
                ended += 1
        assert ended == len(tasks) == 8


def _in_phase(task: GPUJob, phase: Any) -> GPUJob:
    return msgspec.structs.replace(task, status=msgspec.structs.replace(task.status, phase=phase))


def _apply(action: Action, tasks: dict[str, GPUJob], *, parent: GPUJob) -> None:
    if isinstance(action, CreateTask):
        meta = action.manifest["metadata"]
        assert meta["name"] not in tasks
        tasks[meta["name"]] = job_of(action.manifest | {"metadata": meta | {"uid": meta["name"]}})
    if isinstance(action, ChangeTask):
        known = tasks[action.task.metadata.name]
        annotations = {**known.metadata.annotations, **action.annotations}
        kept = {name: value for name, value in annotations.items() if value is not None}
        metadata = msgspec.structs.replace(known.metadata, annotations=kept)
        spec = msgspec.structs.replace(known.spec, suspend=action.spec.get("suspend", known.spec.suspend))
        tasks[known.metadata.name] = msgspec.structs.replace(known, metadata=metadata, spec=spec)


def test_a_task_that_its_array_has_left_behind_is_held_by_nobody_else() -> None:
    parent = make_job(array={"indexes": "0-1"})
    task = make_task(parent, 0, suspend=True, meta={"annotations": {"dovetail.dev/held-with-array": "parallelism"}})
    assert "Held by its array x" in reconcile(see(task)).status.message
    left = msgspec.structs.replace(task, metadata=msgspec.structs.replace(task.metadata, owner_references=[]))
    assert reconcile(see(left)).status.message == "Held: gjob release lets it go on"


def test_an_array_says_why_it_makes_no_further_task_while_others_run() -> None:
    parent = make_job(array={"indexes": "0-1"})
    taken = Obstacle(message="A GPUJob named x-t1 exists and is no task of this job")
    status = seen_with(parent, make_task(parent, 0, phase="Running"), obstacle=taken).status
    assert (status.phase, status.reason) == ("Running", "")
    assert status.message == f"1 of 2 tasks runs, 0 have ended, 1 waits; no further task is made: {taken.message}"
    every = seen_with(parent, *(make_task(parent, index, phase="Running") for index in range(2)), obstacle=taken)
    assert every.status.message == "2 of 2 tasks run, 0 have ended, 0 wait"


def conditions(outcome: Outcome) -> dict[str, tuple[str, str, str]]:
    """Status, reason and time of each condition."""
    return {each.type: (each.status, each.reason, each.last_transition_time) for each in outcome.status.conditions}


def with_condition(type_: str, status: str, **spec: Any) -> GPUJob:
    said = {"type": type_, "status": status, "reason": "x", "message": "", "lastTransitionTime": at(-900)}
    return make_job("sweep", array={"indexes": "0-1"}, status={"conditions": [said]}, **spec)


def test_a_held_array_has_the_condition_suspended_and_keeps_its_time() -> None:
    assert conditions(seen_with(make_job("sweep", array={"indexes": "0-1"}, suspend=True))) == {
        "Suspended": ("True", "Held", at(0))
    }
    held = with_condition("Suspended", "True", suspend=True)
    assert conditions(seen_with(held)) == {"Suspended": ("True", "Held", at(-900))}


def test_an_array_that_is_released_says_so_and_one_that_never_was_held_says_nothing() -> None:
    released = with_condition("Suspended", "True")
    assert conditions(seen_with(released)) == {"Suspended": ("False", "Released", at(0))}
    assert conditions(seen_with(make_job("sweep", array={"indexes": "0-1"}))) == {}


@pytest.mark.parametrize(
    ("second", "type_", "status"), [("Succeeded", "Complete", "True"), ("Failed", "Failed", "True")]
)
def test_an_array_that_is_over_is_complete_or_failed(second: str, type_: str, status: str) -> None:
    parent = make_job("sweep", array={"indexes": "0-1"})
    outcome = seen_with(parent, make_task(parent, 0, phase="Succeeded"), make_task(parent, 1, phase=second))
    assert {name: found[0] for name, found in conditions(outcome).items()} == {type_: status}
    assert (outcome.status.start_time, outcome.status.completion_time) == (at(-60), at(-5))


def test_an_array_begins_with_its_first_task_and_ends_with_its_last() -> None:
    parent = make_job("sweep", array={"indexes": "0-2"}, status={"startTime": at(-100)})
    tasks = [make_task(parent, index, phase="Succeeded") for index in range(3)]
    times = [("-300", "-200"), ("-50", "-40"), ("-80", "-10")]
    moved = [
        msgspec.structs.replace(
            task,
            status=msgspec.structs.replace(task.status, start_time=at(int(start)), completion_time=at(int(end))),
        )
        for task, (start, end) in zip(tasks, times, strict=True)
    ]
    status = seen_with(parent, *moved).status
    assert (status.start_time, status.completion_time) == (at(-300), at(-10))
    later = seen_with(parent, *moved[1:]).status
    assert later.start_time == at(-100), "what was seen before stays"


@pytest.mark.parametrize(
    ("phases", "phase", "says"),
    [
        (["Running", "Running"], "Running", "2 tasks to end"),
        (["Running", "Succeeded"], "Running", "1 task to end"),
        (["Cancelled", "Succeeded"], "Cancelled", "1 of 2 tasks had succeeded"),
    ],
)
def test_a_cancelled_array_counts_its_tasks(phases: list[str], phase: str, says: str) -> None:
    parent = make_job("sweep", array={"indexes": "0-1"}, cancel=True)
    status = seen_with(parent, *(make_task(parent, at_, phase=each) for at_, each in enumerate(phases))).status
    assert (status.phase, status.reason) == (phase, "Cancelled")
    assert says in status.message


@pytest.mark.parametrize(
    ("reason", "on_failure", "phase"),
    [
        ("DependencyFailed", "Cancel", "Cancelled"),
        ("DependencyFailed", "Wait", "Queued"),
        ("Dependency", "Cancel", "Queued"),
    ],
)
def test_an_array_whose_dependency_failed_is_cancelled_where_it_says_so(
    reason: Any, on_failure: str, phase: str
) -> None:
    parent = make_job("sweep", array={"indexes": "0-1"}, onDependencyFailure=on_failure)
    status = seen_with(parent, obstacle=Obstacle(reason=reason, message="no")).status
    assert (status.phase, status.reason) == (phase, reason)


@pytest.mark.parametrize(("limit", "changed_tasks"), [(864_000, ["x-t1"]), (60, ["x-t0", "x-t1"]), (None, ["x-t1"])])
def test_a_task_that_its_limit_let_start_before_others_gets_no_longer_one(
    limit: int | None, changed_tasks: list[str]
) -> None:
    before = make_job(array={"indexes": "0-1"}, activeDeadlineSeconds=120)
    tasks = [make_task(before, index, phase="Running") for index in (0, 1)]
    placement = Placement(generation=1, nodes=[], worker=PlannedWorker(request="1"), limit_seconds=120)
    status = msgspec.structs.replace(tasks[0].status, placement=placement)
    tasks[0] = msgspec.structs.replace(tasks[0], status=status)
    parent = make_job(array={"indexes": "0-1"}, **({} if limit is None else {"activeDeadlineSeconds": limit}))
    found = [each for each in changed(seen_with(parent, *tasks)) if each[1]]
    assert found == [(name, {"activeDeadlineSeconds": limit}) for name in changed_tasks]
