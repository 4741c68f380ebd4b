"""Moves for a waiting job from API objects: which running jobs may move, and what the answer says."""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.answers.moves import MovesAnswer
from dovetail.answers.readers import Reader
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.catalog import rendered
from dovetail.query.explain import moves
from dovetail.query.explain.moves import moves_for
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.moves.plan import NoPlan
from tests.core.query.clusters import RandomCluster
from tests.operator_.builders import NOW, at, make_child

POD = {"containers": [{"name": "main", "image": "busybox"}]}


def two_nodes(**spec: Any) -> RandomCluster:
    """Node a has 4 GPUs and a job `x` on one of them, node b has 2 free; a job `wants` waits for 4."""
    cluster = RandomCluster(rng=Random(1))
    for name, gpus in (("a", 4), ("b", 2)):
        while len(cluster.free.get(name, ())) != gpus:
            cluster.nodes = [each for each in cluster.nodes if each.metadata.name != name]
            cluster.gpunodes = [each for each in cluster.gpunodes if each.metadata.name != name]
            cluster.add_node(name)
    run(cluster, "x", node="a", **spec)
    cluster.jobs.append(wanting(cluster, "wants"))
    return cluster


def run(cluster: RandomCluster, name: str, *, node: str, started: int = -4000, **spec: Any) -> None:
    status = {"phase": "Running", "startTime": at(started), "attempt": 1}
    status |= spec.pop("status", {})
    job = cluster.new_job(name, gpu=1, namespace="team", status=status, template={"spec": POD}, **spec)
    child = make_child(job, uid=f"child-{name}", status={"startTime": at(started)}, parallelism=1, completions=1)
    cluster.jobs.append(job)
    cluster.children.append(child)
    cluster.add_pod(job, child, worker=0, node=node, gpus=1)


def waiting(cluster: RandomCluster) -> GPUJob:
    return next(job for job in cluster.jobs if job.metadata.name.startswith("wants"))


def answer(cluster: RandomCluster, *, budgets: list[PodDisruptionBudget] | None = None) -> MovesAnswer:
    return asked(cluster, waiting(cluster), budgets=[] if budgets is None else budgets)[0]


def asked(
    cluster: RandomCluster, *jobs: GPUJob, budgets: list[PodDisruptionBudget] | None, **options: Any
) -> list[MovesAnswer]:
    found = moves_for(jobs, objects=cluster.objects(), budgets=budgets, now=NOW, **options).items
    for each in found:
        assert rendered(each.details).message == each.summary
        assert [rendered(details).message for details in each.note_details] == each.notes
    return found


def test_a_reader_of_other_namespaces_gets_the_plan_without_the_name_of_the_job_that_moves() -> None:
    cluster = two_nodes()
    reader = Reader(sees=lambda _namespace: False, readable=lambda _sentence: "hidden", everything=False)
    (found,) = moves_for([waiting(cluster)], objects=cluster.objects(), budgets=[], now=NOW, reader=reader).items
    assert found.holds
    assert [each.job for each in found.moves] == [None]


def budget(*, allowed: int, labels: dict[str, str] | None = None) -> PodDisruptionBudget:
    selector = {"matchLabels": labels} if labels else {}
    return msgspec.convert(
        {
            "metadata": {"name": "pdb", "namespace": "team"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )


def test_a_job_moves_to_the_other_node() -> None:
    found = answer(two_nodes(checkpointIntervalSeconds=600))
    assert found.holds
    (move,) = found.moves
    assert (move.job.name, move.saves_every_seconds) == ("x-1", 600)
    assert [each.node for each in move.source + move.destination + found.workers] == ["a", "b", "a"]
    assert move.lost_device_seconds == 660.0
    assert found.summary.startswith("Job 2 (wants-2) starts within ")
    assert "if 1 running job restarts elsewhere: 0.18 GPU hours are lost" in found.summary


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"preemptible": False}, "its owner says that it may not be ended"),
        ({"started": -100}, "it has not run long enough"),
        ({"labels": {names.KUEUE_QUEUE: "q"}}, "Kueue decides where it runs"),
        ({"suspend": True}, "it is held"),
        ({"status": {"preemption": {"count": 1, "at": at(20)}}}, "it is about to end for another job"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_these_jobs_stay(spec: dict[str, Any], why: str) -> None:
    found = answer(two_nodes(**spec))
    assert not found.holds, why
    assert found.movable == 0
    assert found.summary.startswith("No moves for job 2 (wants-2): no set of jobs that may move makes room for it")


@pytest.mark.parametrize(("allowed", "labels", "holds"), [
    (0, None, False),
    (1, None, True),
    (0, {"app": "other"}, True),
])  # fmt: skip
def test_a_disruption_budget_that_covers_the_pod_is_kept(
    allowed: int, labels: dict[str, str] | None, holds: bool
) -> None:
    assert answer(two_nodes(), budgets=[budget(allowed=allowed, labels=labels)]).holds == holds


def test_an_answer_without_the_right_to_read_budgets_says_so() -> None:
    cluster = two_nodes()
    (found,) = asked(cluster, waiting(cluster), budgets=None)
    assert [each for each in found.notes if "PodDisruptionBudgets" in each]


def test_a_job_that_does_not_wait_gets_no_plan() -> None:
    cluster = two_nodes()
    (found,) = asked(cluster, cluster.jobs[0], budgets=[])
    assert found.summary == "No moves for job 1 (x-1): it does not wait for room (phase Running)"


def test_the_plans_for_several_jobs_hold_together_and_the_first_job_of_the_queue_chooses_first() -> None:
    cluster = two_nodes()
    cluster.add_node("c")
    while len(cluster.free["c"]) != 4:
        cluster.nodes.pop()
        cluster.gpunodes.pop()
        cluster.add_node("c")
    run(cluster, "y", node="c")
    second = wanting(cluster, "second", priority=1)
    cluster.jobs.append(second)
    first = waiting(cluster)
    plans = asked(cluster, second, first, cluster.jobs[0], budgets=[])
    assert [each.job.name for each in plans] == [second.metadata.name, first.metadata.name, "x-1"]
    assert [each.holds for each in plans] == [True, True, False]
    taken = [(each.node, index) for plan in plans for each in plan.workers for index in each.indexes]
    taken += [
        (each.node, index)
        for plan in plans
        for move in plan.moves
        for each in move.destination
        for index in each.indexes
    ]
    assert len(taken) == len(set(taken)) == 10
    # With one pod that may end, the first one of the queue has the plan, whichever is named first.
    plans = asked(cluster, second, first, budgets=[budget(allowed=1)])
    assert [each.holds for each in plans] == [False, True]


def test_jobs_choose_in_the_order_of_the_queue_and_not_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, chose = two_nodes(), list[str]()

    def together(jobs: Sequence[Candidate], **_more: object) -> dict[str, NoPlan]:
        chose.extend(each.name for each in jobs)
        return {}

    monkeypatch.setattr(moves, "plan_together", together)
    jobs = [wanting(cluster, f"p{priority}", priority=priority) for priority in (3, 9, 1)]
    cluster.jobs += jobs
    asked(cluster, *jobs, budgets=[])
    assert chose == [f"team/{jobs[at].metadata.name}" for at in (1, 0, 2)]


def test_no_other_moves_are_planned_for_a_job_for_which_jobs_move_already() -> None:
    cluster = two_nodes()
    uid, room = waiting(cluster).metadata.uid, {"time": at(120), "nodes": [{"name": "b", "workers": 1}], "kept": []}
    run(cluster, "moves", node="a", status={"move": {"by": uid, "reserved": room}})
    found = answer(cluster)
    assert (found.holds, found.movable) == (False, 1)
    assert found.summary == "No moves for job 2 (wants-2): jobs move for it already"


def wanting(cluster: RandomCluster, name: str, **spec: Any) -> GPUJob:
    status = {"phase": "Queued", "reason": "Resources"}
    return cluster.new_job(name, gpu=4, namespace="team", template={"spec": POD}, status=status, **spec)


def test_a_budget_is_spent_by_a_preemption_that_is_announced() -> None:
    cluster = two_nodes()
    run(cluster, "leaves", node="b", status={"preemption": {"count": 1, "at": at(20)}})
    assert not answer(cluster, budgets=[budget(allowed=1)]).holds
    assert answer(cluster, budgets=[budget(allowed=2)]).holds
