"""Reservations of GPUQuotas over the operator's state: what counts towards them, and what is kept of them."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpujob import GPUJob
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_operator.queue.cycle import survey
from dovetail_operator.queue.start_estimates import estimates
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state
from tests.operator_.queue.test_quotas import add, make_quota, verdicts

HOUR = 3600.0


def keep(*windows: dict[str, Any], namespace: str = "course", name: str = "q") -> Any:
    return make_quota(name, namespaces=[namespace], advanceReservations=list(windows))


def window(
    name: str = "exam", *, start: float = -HOUR, end: float = HOUR, gpus: int = 2, **more: Any
) -> dict[str, Any]:
    return {"name": name, "startTime": at(start), "endTime": at(end), "gpus": gpus, **more}


def in_pool(state: State, *nodes: str, pool: str) -> None:
    for name in nodes:
        known = state.store.view.nodes[name]
        labels = {**known.metadata.labels, "dovetail.dev/pool": pool}
        meta = {"name": name, "labels": labels}
        status = {"allocatable": known.status.allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        state.store.view.node_changed(msgspec.convert({"metadata": meta, "status": status}, Node))


def runs_on(state: State, name: str, *, node: str, devices: int, namespace: str = "course") -> None:
    """A job of the quota's that holds so many devices of the node."""
    meta = {"namespace": namespace}
    job = make_job(name, gpu=devices, meta=meta, status={"phase": "Running", "startTime": at(-HOUR)})
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=1)
    uid = f"child-{name}"
    state.store.child_changed(make_child(job, uid=uid, status={"startTime": at(-HOUR)}))
    labels = {"dovetail.dev/job": name}
    pod = make_pod(
        devices=devices, node=node, owner=uid, started=-HOUR,
        meta={"uid": f"pod-{name}", "labels": labels, "namespace": namespace},
    )  # fmt: skip
    state.store.pod_event("ADDED", pod)


def kept(state: State) -> dict[str, int]:
    """How many GPUs are kept free now on each node."""
    verdicts(state)
    return {each.name: len(each.keeps) for found in state.store.quotas.kept.values() for each in found}


@pytest.mark.parametrize(
    ("said", "there"),
    [
        (window(start=-2 * HOUR, end=-HOUR), {}),
        (window(), {"a": 1}),
        (window(start=HOUR, end=2 * HOUR), {"a": 1}),
    ],
    ids=["over", "begun", "to come"],
)
def test_what_is_kept_by_when_it_is(said: dict[str, Any], there: dict[str, int]) -> None:
    state = make_state(a=4)
    state.store.quotas.update(keep(said))
    assert dict.fromkeys(kept(state), 1) == there


def test_what_is_in_use_outside_its_pool_does_not_count_towards_a_reservation() -> None:
    state = make_state(a=4, b=4)
    in_pool(state, "b", pool="big")
    state.store.quotas.update(keep(window(gpus=4, pool="big")))
    runs_on(state, "elsewhere", node="a", devices=4)
    add(state, make_job("other", gpu=1))
    told = verdicts(state)["other"]
    assert isinstance(told, Waits)
    assert told.reason == "Reserved"


def test_what_is_in_use_within_its_pool_counts() -> None:
    state = make_state(a=4, b=4)
    in_pool(state, "b", pool="big")
    state.store.quotas.update(keep(window(gpus=2, pool="big")))
    runs_on(state, "there", node="b", devices=2)
    add(state, make_job("other", gpu=2, pool="big"))
    assert isinstance(verdicts(state)["other"], Admitted)


def test_what_is_in_use_counts_towards_one_of_two_reservations_of_one_time() -> None:
    state = make_state(a=4)
    state.store.quotas.update(keep(window("one", gpus=2), window("two", gpus=2)))
    runs_on(state, "first", node="a", devices=2)
    add(state, make_job("other", gpu=1))
    told = verdicts(state)["other"]
    assert isinstance(told, Waits)
    assert told.reason == "Reserved"


def test_what_is_in_use_counts_towards_reservations_of_different_times() -> None:
    state = make_state(a=4)
    state.store.quotas.update(keep(window("one", gpus=2), window("two", gpus=2, start=2 * HOUR, end=3 * HOUR)))
    runs_on(state, "first", node="a", devices=2)
    add(state, make_job("other", gpu=2))
    assert isinstance(verdicts(state)["other"], Admitted)


def test_a_reservation_for_a_pool_without_nodes_keeps_nothing() -> None:
    state = make_state(a=4)
    state.store.quotas.update(keep(window(gpus=4, pool="nowhere")))
    add(state, make_job("other", gpu=4))
    assert isinstance(verdicts(state)["other"], Admitted)


def test_who_is_kept_back_by_a_reservation_is_not_foreseen_to_start_before_it_is_over() -> None:
    state = make_state(a=4)
    state.store.quotas.update(keep(window(gpus=4, end=HOUR)))
    runs_on(state, "x", node="a", devices=1, namespace="team")
    waiting: GPUJob = make_job("other", gpu=3)
    add(state, waiting)
    cycle = survey(state, now=NOW)
    found = dict(each for each in estimates(state, cycle=cycle) if each is not None)
    assert found[waiting.metadata.uid].estimated_start == at(HOUR)
