"""An observation has all that is known of its job, of its own pods and batch Job, and of nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob, Placement, PlannedWorker
from dovetail.api.gpunode import Enforcement
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State, build_state
from tests.core.builders import make_node
from tests.operator_.builders import LET_GO, NOW, make_child, make_job, make_pod, make_state
from tests.operator_.state.test_store import report

JOB = make_job(status={"number": 1, "phase": "Running"})
OTHER = make_job("y", status={"number": 2, "phase": "Running"})


def make() -> State:
    """A job with a batch Job and a running pod, and another one like it, on a node with two GPUs."""
    state = make_state(records=Dues(), n1=2)
    for job in (JOB, OTHER):
        state.store.job_changed(job)
        state.store.child_changed(make_child(job, uid=f"uid-child-{job.metadata.name}"))
        name = job.metadata.name
        meta = {"name": f"{name}-0", "uid": f"uid-{name}-0", "labels": {"dovetail.dev/job": name}}
        state.store.pod_event("ADDED", make_pod(devices=1, owner=f"uid-child-{name}", started=-60, meta=meta))
    return state


def seen(state: State, key: str = "team/x") -> Observed:
    found = state.observe(key, now=NOW)
    assert found is not None
    return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """What makes a difference, and what the job's observation says then."""

    given: Callable[[State], object]
    says: Callable[[Observed], Any]
    wanted: Any


def _with_task(state: State, *, noted: bool) -> None:
    """`x` is a task of an array whose status shows its end, or not."""
    status = {"tasks": {"total": 1, "succeededIndexes": "1" if noted else ""}}
    state.store.job_changed(make_job("arr", array={"indexes": "1"}, status=status))
    owner = {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "name": "arr",
        "uid": "uid-arr",
        "controller": True,
    }
    meta = {"labels": {"dovetail.dev/array": "arr", "dovetail.dev/task": "1"}, "ownerReferences": [owner]}
    state.store.job_changed(make_job("arr-t1", meta=meta, status={"phase": "Succeeded"}))


def _simulated(state: State) -> None:
    """Node n1 is simulated, and another one is not."""
    for name, annotations in (("n1", {names.SIMULATED_NODE: "fake"}), ("real", {})):
        state.store.node_changed(make_node(name, metadata={"name": name, "annotations": annotations}))


PLAN = Placement(generation=1, nodes=[], worker=PlannedWorker(request="1", mode="Exclusive"))
ENFORCED = Enforcement(mps=True)
NOTICE = Notice(by="uid-z", message="Is preempted", grace_seconds=30.0)
CASES = {
    "its verdict": Case(
        given=lambda it: it.decisions.set_verdict("uid-x", verdict=LET_GO),
        says=lambda each: each.verdict,
        wanted=LET_GO,
    ),
    "its notice": Case(
        given=lambda it: it.decisions.set_notices({"uid-x": NOTICE}), says=lambda each: each.notice, wanted=NOTICE
    ),
    "why its plan does not hold": Case(
        given=lambda it: it.decisions.set_overtaken({"uid-x": "n1 is gone"}),
        says=lambda each: each.overtaken,
        wanted="n1 is gone",
    ),
    "its plan with other nodes": Case(
        given=lambda it: it.decisions.set_replacements({"uid-x": PLAN}),
        says=lambda each: each.replacement,
        wanted=PLAN,
    ),
    "what the API server refused": Case(
        given=lambda it: it.decisions.refuse(JOB, obstacle=Obstacle(message="no")),
        says=lambda each: each.obstacle,
        wanted=Obstacle(message="no"),
    ),
    "since when it is idle": Case(
        given=lambda it: it.decisions.set_idle("uid-x", since=NOW), says=lambda each: each.idle_since, wanted=NOW
    ),
    "the words of Kueue on its batch Job": Case(
        given=lambda it: it.decisions.set_kueue("uid-child-x", message="no quota"),
        says=lambda each: each.kueue,
        wanted="no quota",
    ),
    "its final record": Case(
        given=lambda it: it._records._kept.add("uid-x"),  # type: ignore[union-attr]
        says=lambda each: each.recorded,
        wanted=True,
    ),
    "a dependent that has not noted its end": Case(
        given=lambda it: it.store.job_changed(make_job("z", dependencies=[{"name": "x"}])),
        says=lambda each: each.awaited,
        wanted=True,
    ),
    "an ill device that it holds": Case(
        given=lambda it: it.store.gpunode_changed(report(devices=1, health="Unhealthy")),
        says=lambda each: ["(GPU-n1-0)" in card for card in each.bad_cards],
        wanted=[True],
    ),
    "what its node enforces": Case(
        given=lambda it: it.store.gpunode_changed(report(of_node={"enforcement": ENFORCED})),
        says=lambda each: each.enforcement,
        wanted={"n1": ENFORCED},
    ),
    "a size that an elastic job started with": Case(
        given=lambda it: (
            it.store.job_changed(
                make_job(workers=4, minWorkers=1, status={"number": 1}, meta={"resourceVersion": "11"})
            ),
            it.store.child_event("DELETED", make_child(JOB, uid="uid-child-x")),
            it.store.child_changed(make_child(JOB, uid="uid-child-x", completions=2)),
        ),
        says=lambda each: (each.job.spec.workers, each.asked_workers),
        wanted=(2, 4),
    ),
    "a node on which nothing really runs": Case(
        given=_simulated, says=lambda each: each.simulated, wanted=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_a_job_is_in_its_own_observation_alone(name: str) -> None:
    case, state = CASES[name], make()
    before = case.says(seen(state)), case.says(seen(state, "team/y"))
    case.given(state)
    assert case.says(seen(state)) == case.wanted
    assert before[0] != case.wanted, "it makes the difference"
    if name not in {"an ill device that it holds", "what its node enforces", "a node on which nothing really runs"}:
        assert case.says(seen(state, "team/y")) == before[1]


def test_without_a_history_every_job_counts_as_recorded() -> None:
    state = build_state(make_state(n1=1).store.view)
    state.store.job_changed(JOB)
    assert seen(state).recorded


@pytest.mark.parametrize("noted", [True, False])
def test_a_task_is_awaited_until_its_array_has_noted_its_end(noted: bool) -> None:
    state = make_state(n1=1)
    _with_task(state, noted=noted)
    assert seen(state, "team/arr-t1").awaited is not noted


def test_a_job_that_has_no_pods_any_more_is_simulated_where_it_was() -> None:
    """Its status names the nodes on which it ran."""
    state = make()
    _simulated(state)
    ended = make_job("old", status={"phase": "Succeeded", "nodes": ["n1"]})
    state.store.job_changed(ended)
    assert seen(state, "team/old").simulated


@pytest.mark.parametrize("child", [None, "another's", "its own"])
def test_pods_of_an_earlier_run_keep_a_job_from_starting_where_nothing_else_does(child: str | None) -> None:
    """A foreign batch Job of the name is an obstacle by itself, with its own message."""
    state = make_state(n1=2)
    job: GPUJob = make_job(status={"number": 7})
    state.store.job_changed(job)
    labels = {"dovetail.dev/job": "x", "dovetail.dev/job-number": "7"}
    state.store.pod_event("ADDED", make_pod(owner="uid-earlier", meta={"labels": labels}))
    if child == "its own":
        state.store.child_changed(make_child(job, suspend=True, status={"conditions": []}))
    elif child is not None:
        state.store.child_changed(make_child(make_job(meta={"uid": "uid-other"})))
    found = state.obstacle_of(job, now=NOW + timedelta(seconds=1))
    assert (found is not None) is (child != "another's")
    if found is not None:
        assert "run before" in found.message


@pytest.mark.parametrize("orphaned", [True, False])
def test_a_guest_waits_for_the_pods_of_its_earlier_record_but_not_for_those_that_go_on_alone(orphaned: bool) -> None:
    """A pod that its deleted owner has left behind goes on."""
    state = make_state(n1=2)
    record = make_job("job-g", status={"number": 7}, managedBy=names.GUESTS_MANAGER)
    state.store.job_changed(record)
    state.store.child_changed(make_child(record, suspend=True))
    meta: dict[str, Any] = {"labels": {"dovetail.dev/job": "job-g"}}
    if orphaned:
        meta["ownerReferences"] = []
        meta["annotations"] = {names.SEAT: "uid-earlier/0"}
    state.store.pod_event("ADDED", make_pod(owner="uid-earlier", meta=meta))
    found = state.obstacle_of(record, now=NOW)
    assert (found is None) is orphaned
