from typing import Any

import msgspec

from dovetail.kube.objects import Node
from dovetail.queue.admission import Admitted, Verdict, Waits
from dovetail_operator.admission import RENEWAL_SECONDS, RENEWED_JOBS, Teller, decide, survey
from dovetail_operator.observed import Obstacle
from dovetail_operator.state import State
from tests.operator_.builders import NO_ROOM, NOW, condition, make_child, make_job, make_pod, make_state


def submit(state: State, name: str, *, child: bool = False, **spec: Any) -> None:
    job = make_job(name, status={"number": 1}, **spec)
    state.put_job(job)
    if child:
        state.put_child(make_child(job, uid=f"uid-child-{name}"))


def verdicts(state: State) -> dict[str, Verdict]:
    return {verdict.key.removeprefix("uid-"): verdict for verdict in decide(state, survey(state, now=NOW))}


def names(candidates: list[Any]) -> list[str]:
    return [candidate.name.removeprefix("team/") for candidate in candidates]


def test_the_queue_looks_at_those_that_want_to_start() -> None:
    state = make_state(a=8)
    submit(state, "new")
    submit(state, "held", suspend=True)
    submit(state, "invalid", gpu="8X,0.5")
    submit(state, "at-work", child=True)
    state.put_job(make_job("unnumbered"))
    cycle = survey(state, now=NOW)
    assert names(cycle.waiting) == ["new"]
    assert names(cycle.on_the_way) == ["at-work"]
    assert cycle.keys == {"uid-new": "team/new"}


def test_a_job_that_was_refused_by_the_api_server_takes_no_room() -> None:
    state = make_state(a=1)
    submit(state, "refused", priority=20)
    submit(state, "next")
    state.refuse(state.jobs["team/refused"], Obstacle(message="no"))
    assert isinstance(verdicts(state)["next"], Admitted)


def test_room_of_a_job_that_was_let_go_is_kept_until_its_pods_are_bound() -> None:
    state = make_state(a=1)
    submit(state, "first", child=True)
    submit(state, "next")
    assert isinstance(verdicts(state)["next"], Waits)


def test_room_is_kept_also_before_the_batch_job_is_there() -> None:
    state = make_state(a=1)
    submit(state, "first")
    state.verdicts["uid-first"] = Admitted(key="uid-first")
    submit(state, "next", priority=99)
    found = verdicts(state)
    assert set(found) == {"next"}
    assert isinstance(found["next"], Waits)
    assert (found["next"].reason, found["next"].message) == ("Resources", "Need 1 GPU, only 0 available")


def test_a_bound_pod_counts_once() -> None:
    state = make_state(a=2)
    submit(state, "first", child=True)
    state.pod_changed("ADDED", make_pod(node="a", devices=1, owner="uid-child-first"))
    submit(state, "next")
    assert isinstance(verdicts(state)["next"], Admitted)


def test_room_of_a_pod_that_has_ended_is_free_before_its_batch_job_knows() -> None:
    state = make_state(a=1)
    submit(state, "first", child=True)
    state.pod_changed("ADDED", make_pod(phase="Succeeded", node="a", devices=1, owner="uid-child-first"))
    submit(state, "next")
    assert isinstance(verdicts(state)["next"], Admitted)


def test_a_job_is_placed_where_its_pods_may_go() -> None:
    state = make_state(a=1, b=1)
    pool_b = {"metadata": {"name": "b", "labels": {"dovetail.dev/managed": "true", "pool": "b"}}}
    status = {"allocatable": {"cpu": "64", "memory": "256Gi"}, "conditions": [condition("Ready")]}
    state.view.node_changed(msgspec.convert({**pool_b, "status": status}, Node))
    spec = {"containers": [{"name": "main"}], "nodeSelector": {"pool": "b"}}
    for name in ("x", "y"):
        submit(state, name, template={"spec": spec})
    found = verdicts(state)
    assert isinstance(found["x"], Admitted)
    assert [claim.node for claim in found["x"].claims] == ["b"]
    assert isinstance(found["y"], Waits)


def renewed(message: str, *, reason: str = "Resources") -> Waits:
    return Waits(key="uid-x", reason=reason, message=message)  # type: ignore[arg-type]


def test_another_reason_is_told_at_once() -> None:
    teller = Teller()
    assert not teller.hold_back(NO_ROOM, None, rank=5000, now=0)
    assert not teller.hold_back(renewed("apart", reason="Fragmentation"), NO_ROOM, rank=5000, now=0.1)


def test_other_numbers_are_told_to_the_first_jobs_now_and_then() -> None:
    teller = Teller()
    teller.hold_back(NO_ROOM, None, rank=0, now=0)
    news = renewed("Need 4 GPUs, only 2 available")
    assert teller.hold_back(news, NO_ROOM, rank=0, now=RENEWAL_SECONDS - 1)
    assert not teller.hold_back(news, NO_ROOM, rank=0, now=RENEWAL_SECONDS)
    assert teller.hold_back(renewed("Need 4 GPUs, only 3 available"), news, rank=0, now=RENEWAL_SECONDS + 1)


def test_other_numbers_are_not_told_far_back_in_the_queue() -> None:
    teller = Teller()
    teller.hold_back(NO_ROOM, None, rank=RENEWED_JOBS, now=0)
    assert teller.hold_back(renewed("Need 4 GPUs, only 2 available"), NO_ROOM, rank=RENEWED_JOBS, now=1e6)


def test_what_was_noted_of_a_job_goes_with_it() -> None:
    teller = Teller()
    teller.hold_back(NO_ROOM, None, rank=0, now=100)
    teller.forget_all_but(set())
    assert not teller.hold_back(renewed("Need 4 GPUs, only 2 available"), NO_ROOM, rank=0, now=101)
