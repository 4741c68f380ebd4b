"""A worker whose node failed gets another node in the plan of its job, and the other workers go on."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, Placement
from dovetail.jobs.batch_job import workers_without_node
from dovetail.jobs.plan import nodes_by_worker, with_other_nodes
from dovetail_operator.events.announcement import announcement
from dovetail_operator.job import failure_policy
from dovetail_operator.job.plan_doubts import Doubt
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.manifests.planned_template import with_plan
from dovetail_operator.queue.cycle import Cycle, decide, survey
from dovetail_operator.queue.loop import OvertakenPlans
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, condition, make_child, make_job, make_pod, make_state
from tests.operator_.job.test_plan import cordon, plan

REFUSED = condition("PodScheduled", status="False", reason="Unschedulable")
DISRUPTED = condition("DisruptionTarget", reason="EvictionByEvictionAPI")


def at_work(state: State, *nodes: tuple[str, int], restart: str = "Worker", **spec: Any) -> GPUJob:
    """A running job whose workers want 2 GPUs each. Those on the node `a` are bound, and have the same 2 GPUs."""
    placement = plan(*nodes)
    workers = nodes_by_worker(msgspec.convert(placement, Placement))
    status = {"number": 1, "plans": 1, "phase": "Running", "placement": placement}
    job = make_job(gpu=2, workers=len(workers), restart=restart, status=status, **spec)
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    for worker, node in enumerate(workers):
        if node == "a":
            state.store.pod_event("ADDED", make_pod(worker, node=node, devices=2, meta={"uid": f"uid-{worker}"}))
    return job


def cycle_of(state: State) -> Cycle:
    cycle = survey(state, now=NOW)
    list(decide(state, cycle=cycle))
    return cycle


def replaced(state: State) -> list[str] | None:
    """The node of each worker in the new plan."""
    found = cycle_of(state).replacements.get("uid-x")
    return None if found is None else list(nodes_by_worker(found))


def test_a_worker_of_a_lost_node_gets_another_one() -> None:
    state = make_state(a=2, b=4, c=4)
    at_work(state, ("a", 2), ("b", 1))
    state.store.view.node_gone("b")
    cycle = cycle_of(state)
    assert list(nodes_by_worker(cycle.replacements["uid-x"])) == ["a", "a", "c"]
    assert cycle.replacements["uid-x"].generation == 1, "it is still the plan of the pods that run"
    assert cycle.doubts == {}


def test_a_refused_pod_of_a_replaced_worker_is_no_doubt() -> None:
    state = make_state(a=2, b=4, c=4)
    at_work(state, ("a", 2), ("b", 1))
    cordon(state, "b")
    state.store.pod_event("ADDED", make_pod(2, phase="Pending", node="", conditions=[REFUSED]))
    assert cycle_of(state).doubts == {}


@pytest.mark.parametrize(
    ("nodes", "restart", "patience"),
    [
        # Room may come free for the lost worker alone.
        pytest.param({"a": 2, "b": 4}, "Worker", 3.0, id="no other node has room"),
        pytest.param({"a": 2, "b": 4, "c": 4}, "Gang", 0.0, id="the job restarts as a gang"),
    ],
)
def test_the_gang_gets_a_new_plan_otherwise(nodes: dict[str, int], restart: str, patience: float) -> None:
    state = make_state(**nodes)
    at_work(state, ("a", 2), ("b", 1), restart=restart)
    state.store.view.node_gone("b")
    cycle = cycle_of(state)
    assert cycle.replacements == {}
    assert cycle.doubts == {"uid-x": Doubt(why="node b is gone", patience_seconds=patience)}


def test_bound_pods_that_the_watch_shows_after_the_cordon_go_on() -> None:
    state = make_state(a=2, b=4, c=4)
    at_work(state, ("b", 1), ("c", 2))
    cordon(state, "b")
    assert cycle_of(state).doubts["uid-x"].patience_seconds > 0
    for worker in (1, 2):
        state.store.pod_event("ADDED", make_pod(worker, node="c", devices=2, meta={"uid": f"uid-{worker}"}))
    cycle = cycle_of(state)
    first, *others = nodes_by_worker(cycle.replacements["uid-x"])
    assert (first != "b", others) == (True, ["c", "c"])
    assert cycle.doubts == {}


def test_a_gang_that_has_lost_all_its_workers_starts_again_as_a_whole() -> None:
    state = make_state(b=4, c=4)
    at_work(state, ("b", 2))
    state.store.view.node_gone("b")
    assert replaced(state) is None


def test_a_worker_whose_own_node_still_has_its_room_returns_there() -> None:
    state = make_state(a=2, b=2, c=2, d=2)
    at_work(state, ("a", 2), ("b", 1), ("c", 1))
    state.store.view.node_gone("c")
    assert replaced(state) == ["a", "a", "b", "d"]


def test_the_room_of_a_replaced_worker_is_not_given_to_a_waiting_job() -> None:
    state = make_state(a=2, b=2, c=2)
    at_work(state, ("a", 2), ("b", 1))
    state.store.view.node_gone("b")
    state.store.job_changed(make_job("next", gpu=2, status={"number": 2}))
    cycle = survey(state, now=NOW)
    (verdict,) = decide(state, cycle=cycle)
    assert verdict.key == "uid-next"
    assert getattr(verdict, "reason", "") == "Resources"
    assert "uid-x" in cycle.replacements


async def test_the_new_plan_is_written_and_announced() -> None:
    state, changed = make_state(a=2, b=4, c=4), list[str]()
    job = at_work(state, ("a", 2), ("b", 1))
    state.store.view.node_gone("b")
    plans = OvertakenPlans(state, changed=changed.append, wake_up=WakeUp(), now=lambda: NOW)
    for _ in range(2):
        plans.update(cycle_of(state))
    assert changed == ["team/x"], "the same plan is written once"
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    status = reconcile(seen).status
    assert status.placement is not None
    assert nodes_by_worker(status.placement) == ("a", "a", "c")
    assert (status.phase, status.plans) == ("Running", 1)
    said = announcement(job, status=status)
    assert said is not None
    assert (said.reason, said.message) == (
        "WorkerReplaced",
        "Replaced on other nodes, the other workers go on: worker 2 from b to c",
    )


def test_a_plan_keeps_the_order_of_its_workers() -> None:
    placement = msgspec.convert(plan(("a", 3)), Placement)
    moved = with_other_nodes(placement, nodes={1: "b"})
    assert [(node.name, node.workers) for node in moved.nodes] == [("a", 1), ("b", 1), ("a", 1)]
    assert moved.replaced == 1


def test_the_pods_of_such_a_job_name_no_nodes_because_the_template_of_a_running_job_is_fixed() -> None:
    placement = msgspec.convert(plan(("a", 1)), Placement)
    made = with_plan({"metadata": {}, "spec": {}}, job=make_job(restart="Worker"), placement=placement)
    assert made["spec"] == {}
    assert "dovetail.dev/plan" in made["metadata"]["annotations"]


def test_a_disrupted_pod_fails_no_batch_job_whose_workers_are_replaced() -> None:
    rules = [failure_policy.failure_rules(make_job(restart=restart))[0]["action"] for restart in ("Gang", "Worker")]
    assert rules == ["FailJob", "Ignore"]


@pytest.mark.parametrize(
    ("restart", "conditions", "open_workers"),
    [("Worker", [DISRUPTED], 1), ("Gang", [DISRUPTED], 0), ("Worker", [], 0)],
    ids=["replaced", "the gang ends", "failed by itself"],
)
def test_a_disrupted_worker_waits_for_a_node(restart: str, conditions: list[dict[str, Any]], open_workers: int) -> None:
    job = make_job(gpu=2, workers=2, restart=restart)
    pods: list[Pod] = [make_pod(0, node="a"), make_pod(1, node="b", phase="Failed", conditions=conditions)]
    assert workers_without_node(job, child=make_child(job), pods=pods) == open_workers
