"""Which running jobs may restart elsewhere: all that has to hold, each missing alone and with others."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from dovetail import names
from dovetail.formats.timestamps import timestamp
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.moves.movable import movable_of, pods_to_move
from dovetail.queue.moves.plan import Movable, Rules
from tests.core.engine.builders import make_ask
from tests.operator_.builders import NOW, at, make_budget, make_child, make_job, make_pod
from tests.seeds import seeds

LEAST_SECONDS = 300.0
ALREADY = {"count": 1, "by": "uid-y", "message": "it ends", "lastTime": at(-20)}
# What keeps a job where it is: the changes of its spec, of its labels, of its status, and of its pods.
OBSTACLES: dict[str, dict[str, Any]] = {
    "its owner forbids that it ends for others": {"spec": {"preemptible": False}},
    "it is suspended": {"spec": {"suspend": True}},
    "it is cancelled": {"spec": {"cancel": True}},
    "it is a reservation": {"spec": {"reservation": {"durationSeconds": 3600}}},
    "Kueue decides where it runs": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "its own controller makes its pods": {"spec": {"managedBy": names.GUESTS_MANAGER}},
    "it ends for another job already": {"status": {"preemption": {**ALREADY, "at": at(10)}}},
    "it has just begun": {"status": {"startTime": at(-LEAST_SECONDS + 1)}},
    "it has not begun": {"status": {"startTime": None}},
    "it is over": {"status": {"phase": "Succeeded"}},
    "it has no batch Job": {"child": None},
    "its batch Job is suspended": {"child": {"suspend": True}},
    "a worker has no node": {"pods": "unbound"},
    "a worker is going": {"pods": "going"},
    "a worker has no pod": {"pods": "missing"},
    "a worker has failed": {"pods": "failed"},
}


def is_movable(obstacles: list[str]) -> bool:
    """Whether a job of two workers with these obstacles may restart elsewhere."""
    spec: dict[str, Any] = {"workers": 2}
    status: dict[str, Any] = {"phase": "Running", "startTime": at(-LEAST_SECONDS), "preemption": ALREADY}
    labels: dict[str, str] = {}
    child: dict[str, Any] | None = {"completions": 2, "parallelism": 2}
    pods = [make_pod(worker, node=f"n{worker}") for worker in range(2)]
    for each in obstacles:
        change = OBSTACLES[each]
        spec |= change.get("spec", {})
        status |= change.get("status", {})
        labels |= change.get("labels", {})
        extra = change.get("child", {})
        child = None if child is None or extra is None else child | extra
        pods[1:] = _worker(change["pods"]) if "pods" in change else pods[1:]
    job = make_job(status=status, meta={"labels": labels}, **spec)
    made = None if child is None else make_child(job, **child)
    found = pods_to_move(job, child=made, pods=pods, least_seconds=LEAST_SECONDS, now=NOW)
    assert found in ((), tuple(pods))
    return bool(found)


def _worker(how: str) -> list[Any]:
    if how == "missing":
        return []
    if how == "unbound":
        return [make_pod(1, node="", phase="Pending")]
    meta = {"deletionTimestamp": at(-5), "deletionGracePeriodSeconds": 30} if how == "going" else {}
    return [make_pod(1, node="n1", phase="Failed" if how == "failed" else "Running", meta=meta)]


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_one_obstacle_is_enough_to_keep_a_job_where_it_is(obstacle: str) -> None:
    assert is_movable([])
    assert not is_movable([obstacle])


@seeds(20)
def test_no_obstacle_takes_another_one_away(seed: int) -> None:
    assert not is_movable(Random(seed).sample(sorted(OBSTACLES), k=3))


def mover(name: str, **covered: int) -> Movable:
    job = Candidate(key=name, name=f"team/{name}", ask=make_ask("1"))
    return Movable(job=job, claims=(name,), run_seconds=100.0, covered_pods=covered)


@seeds(40)
def test_moves_of_a_plan_are_within_a_budget_together(seed: int) -> None:
    random = Random(seed)
    movers = [
        mover(f"m{number}", **{budget: random.randint(1, 2) for budget in "ab" if random.random() < 0.5})
        for number in range(random.randint(0, 3))
    ]
    allowed = {budget: random.randint(0, 4) for budget in "ab" if random.random() < 0.9}
    expected = all(
        sum(each.covered_pods.get(budget, 0) for each in movers) <= allowed.get(budget, 0) for budget in "ab"
    )
    assert Rules(disruptions_allowed=allowed).within_budgets(movers) == expected


@pytest.mark.parametrize(("saved", "unsaved"), [(None, 630.0), (60, 60.0), (615, 615.0), (10_000, 630.0)])
def test_what_a_move_loses_is_what_was_not_saved_until_its_end(saved: int | None, unsaved: float) -> None:
    spec = {} if saved is None else {"checkpointIntervalSeconds": saved}
    job = make_job(status={"phase": "Running", "startTime": timestamp(NOW - timedelta(seconds=600))}, **spec)
    pods = [make_pod(worker, meta={"labels": {"app": "web"}}) for worker in range(2)]
    found = movable_of(
        job, candidate=Candidate(key="x", name="team/x", ask=make_ask("1")), pods=pods, now=NOW,
        budgets=[make_budget("web", app="web"), make_budget("other", app="other")],
    )  # fmt: skip
    assert found.unsaved_seconds(grace_seconds=30.0) == unsaved
    assert (found.claims, dict(found.covered_pods)) == (tuple(pod.metadata.uid for pod in pods), {"team/web": 2})
