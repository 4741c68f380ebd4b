"""Drains: jobs on a cordoned node restart elsewhere, if and only if a cycle would start them there."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Content
from dovetail_operator.job.actions import PatchJob
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from dovetail_operator.queue.cycle import survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.preemption_notices import PreemptionNotices, drain_notices
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state

RESTART = DrainRules(restarts=True, grace_seconds=60)
KARPENTERS = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]


def make_rig(*, rules: DrainRules = RESTART, **nodes: int) -> State:
    return make_state(drain=rules, **(nodes or {"a": 4, "b": 4}))


def run(state: State, name: str, *nodes: str, devices: int = 1, **spec: Any) -> None:
    """A running job with one worker on each of the nodes."""
    status = {"number": 1, "phase": "Running", "startTime": at(-3600)}
    job = make_job(name, status=status, **{"gpu": devices, "workers": len(nodes), **spec})
    state.store.job_changed(job)
    state.store.child_changed(make_child(job, uid=f"child-{name}", completions=len(nodes)))
    for worker, node in enumerate(nodes):
        meta = {"uid": f"pod-{name}-{worker}", "labels": {"dovetail.dev/job": name}, "name": f"{name}-{worker}"}
        pod = make_pod(worker, node=node, devices=devices, owner=f"child-{name}", started=-3600, meta=meta)
        state.store.pod_event("ADDED", pod)


def drain(state: State, name: str, *, taints: list[dict[str, str]] | None = None) -> None:
    node = state.store.view.nodes[name]
    spec = {"taints": taints} if taints else {"unschedulable": True}
    state.store.view.node_changed(msgspec.structs.replace(node, spec=msgspec.convert(spec, type(node.spec))))


def moved(state: State) -> set[str]:
    return {uid.removeprefix("uid-") for uid in drain_notices(state, cycle=survey(state, now=NOW))}


def test_a_gang_with_one_worker_on_a_cordoned_node_restarts_elsewhere() -> None:
    state = make_rig(a=4, b=4, c=4)
    run(state, "gang", "a", "b", devices=4)
    assert moved(state) == set()
    drain(state, "a")
    (notice,) = drain_notices(state, cycle=survey(state, now=NOW)).values()
    assert (notice.by, notice.grace_seconds) == ("Drain", 60)
    assert notice.message == "Restarts on other nodes, because a is to be emptied"


def test_a_gang_without_room_elsewhere_goes_on() -> None:
    state = make_rig(a=4, b=4)
    run(state, "gang", "a", "b", devices=4)
    drain(state, "a")
    assert moved(state) == set()


def test_a_node_that_karpenter_is_about_to_remove_counts() -> None:
    state = make_rig()
    run(state, "x", "a")
    drain(state, "a", taints=KARPENTERS)
    assert moved(state) == {"x"}


def test_by_default_jobs_stay_until_they_are_evicted() -> None:
    state = make_rig(rules=DrainRules(), a=4, b=4)
    run(state, "x", "a")
    drain(state, "a")
    assert moved(state) == set()


def test_two_jobs_are_not_promised_the_same_room() -> None:
    state = make_rig(a=4, b=2)
    run(state, "first", "a", devices=2, priority=20)
    run(state, "second", "a", devices=2)
    drain(state, "a")
    assert moved(state) == {"first"}


def test_room_that_a_waiting_job_takes_is_no_room_for_a_drained_one() -> None:
    state = make_rig(a=4, b=4)
    run(state, "x", "a", devices=4)
    state.store.job_changed(make_job("boss", gpu=4, priority=90, status={"number": 2}))
    drain(state, "a")
    assert moved(state) == set()


@pytest.mark.parametrize("spec", [{"preemptible": False}])
def test_a_job_that_may_not_be_ended_stays(spec: dict[str, Any]) -> None:
    state = make_rig()
    run(state, "x", "a", **spec)
    drain(state, "a")
    assert moved(state) == set()


def test_a_job_does_not_stand_in_its_own_way_at_a_quota() -> None:
    state = make_rig()
    state.store.quotas.update(msgspec.convert({"metadata": {"name": "q"}, "spec": {"limit": {"gpus": 2}}}, GPUQuota))
    run(state, "x", "a", devices=2)
    drain(state, "a")
    assert moved(state) == {"x"}


def test_looking_for_room_changes_nothing() -> None:
    state = make_rig()
    run(state, "x", "a")
    drain(state, "a")
    before: Content = state.store.view.ledger.content()
    assert moved(state) == {"x"}
    assert state.store.view.ledger.content() == before


class Clock:
    def __init__(self) -> None:
        self.now = NOW


def outcome(state: State, clock: Clock) -> Outcome:
    seen = state.observe("team/x", now=clock.now)
    assert seen is not None
    return reconcile(seen)


async def test_the_job_gets_its_notice_and_its_grace_and_then_waits_for_its_new_place() -> None:
    state, clock = make_rig(), Clock()
    run(state, "x", "a")
    drain(state, "a")
    notices = PreemptionNotices(
        state, caches=caches_for(state), changed=lambda _: None, wake_up=WakeUp(), now=lambda: clock.now
    )
    notices.update(survey(state, now=clock.now))
    announced = outcome(state, clock)
    assert announced.status.phase == "Running"
    assert announced.status.preemption is not None
    assert (announced.status.preemption.by, announced.status.preemption.at) == ("Drain", at(61))
    job = msgspec.structs.replace(
        state.store.jobs["team/x"],
        status=announced.status,
        metadata=msgspec.structs.replace(state.store.jobs["team/x"].metadata, resource_version="11"),
    )
    state.store.job_changed(job)
    clock.now = NOW + timedelta(seconds=62)
    seen = state.observe("team/x", now=clock.now)
    assert seen is not None
    assert notices.still_hold(seen)
    ended = outcome(state, clock)
    assert (ended.status.phase, ended.status.reason) == ("Preempted", "NodeUnhealthy")
    assert ended.actions == (PatchJob(spec={"suspend": True}, disrupts=True),)
    state.store.view.node_changed(uncordoned(state.store.view.nodes["a"]))
    assert not notices.still_hold(seen), "the node stays"


def uncordoned(node: Node) -> Node:
    return msgspec.structs.replace(node, spec=type(node.spec)())
