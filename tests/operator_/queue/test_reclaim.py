"""Guarantees over the operator's state: who is notified, what the message says, and that they hold after a restart."""

from typing import Any

from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.verdicts import Verdict, Waits
from dovetail_operator.queue.cycle import Cycle, decide, survey
from dovetail_operator.queue.preemption_notices import notices_of
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state
from tests.operator_.queue.test_quotas import make_quota


def cluster(*quotas: Any, **victim: Any) -> State:
    """Two nodes of a GPU each that namespace `idle` uses, and a job of namespace `team` that wants one."""
    state = make_state(a=1, b=1)
    for quota in quotas:
        state.store.quotas.update(quota)
    for number in range(2):
        name = f"borrows-{number}"
        status = {"phase": "Running", "startTime": at(-600 + number)} | victim.get("status", {})
        job = make_job(
            name, gpu=1, meta={"namespace": "idle"}, status=status, **{k: v for k, v in victim.items() if k != "status"}
        )
        state.store.job_changed(job)
        state.decisions.set_number(job.metadata.uid, number=number + 1)
        state.store.child_changed(make_child(job, uid=f"child-{number}"))
        meta = {"namespace": "idle", "labels": {"dovetail.dev/job": name}, "uid": f"pod-{number}"}
        pod = make_pod(devices=1, node="ab"[number], owner=f"child-{number}", started=-600, meta=meta)
        state.store.pod_event("ADDED", pod)
    owner = make_job("mine", gpu=1, priority=0)
    state.store.job_changed(owner)
    state.decisions.set_number(owner.metadata.uid, number=9)
    return state


def look(state: State) -> tuple[Cycle, dict[str, Verdict]]:
    cycle = survey(state, now=NOW)
    return cycle, {verdict.key: verdict for verdict in decide(state, cycle=cycle)}


TEAM = make_quota("team", namespaces=["team"], guaranteed={"gpus": 1})


def test_an_owner_gets_its_guarantee_back_without_a_higher_priority() -> None:
    state = cluster(TEAM)
    cycle, found = look(state)
    assert {victim: order.by.key for victim, order in cycle.orders.items()} == {"uid-borrows-1": "uid-mine"}
    waits = found["uid-mine"]
    assert isinstance(waits, Waits)
    assert waits.message == "Need 1 GPU, only 0 available; 1 job of a borrower is ended for it"
    notice = notices_of(cycle.orders, state=state)["uid-borrows-1"]
    assert notice.message == "Is ended for GPUQuota team: it is guaranteed 1 GPU, uses 0, and a job of it needs 1"


def test_without_a_guarantee_nothing_ends() -> None:
    assert look(cluster(make_quota("team", namespaces=["team"], limit={"gpus": 1})))[0].orders == {}


def test_who_was_notified_stays_notified_in_another_process() -> None:
    notice = {"at": at(20), "by": "uid-mine", "message": "", "count": 0}
    state = cluster(TEAM, status={"preemption": notice})
    cycle, _ = look(state)
    assert len(cycle.orders) == 1, "one of the two suffices"


def test_a_quota_that_names_a_missing_parent_limits_as_before() -> None:
    quotas = Quotas()
    quotas.update(make_quota("team", namespaces=["team"], parent="gone", limit={"gpus": 1}))
    assert [finding.reason for finding in quotas.tree().findings] == ["ParentMissing"]
    gate = quotas.gate([])
    assert gate is not None
