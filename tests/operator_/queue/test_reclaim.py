"""Guarantees over the operator's state: who is notified, what the message says, and that they hold after a restart."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuotaStatus
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.verdicts import Verdict, Waits
from dovetail_operator.queue.cycle import Cycle, decide, running_jobs, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.preemption_notices import PreemptionNotices, notices_of
from dovetail_operator.queue.wake_up import WakeUp
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
        state.store.child_changed(make_child(job, uid=f"child-{number}", status={"startTime": at(-600)}))
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


# Of two nodes of a GPU each, one is to be ready.
READY = make_quota(
    "team", namespaces=["team"], guaranteed={"gpus": 1}, reserve={"gpus": 1, "leaveWithinSeconds": 10}
)  # fmt: skip


def reserving(quota: Any = READY, **victim: Any) -> State:
    """The cluster without a job of the team: its reserve is all that wants a GPU."""
    state = cluster(quota, **victim)
    state.store.job_deleted("team/mine", uid="uid-mine")
    return state


def test_a_job_whose_pods_need_too_long_leaves_a_reserve_without_a_job_that_waits() -> None:
    state = reserving()
    cycle, _ = look(state)
    assert {victim: order.by.key for victim, order in cycle.orders.items()} == {"uid-borrows-1": "reserve/team"}
    notice = notices_of(cycle.orders, state=state)["uid-borrows-1"]
    assert (notice.by, notice.grace_seconds) == ("reserve/team", 30.0)
    ready = state.store.quotas.reserves["team"]
    assert (ready.gpus, ready.ready, ready.lent) == (1, 0, 0)


def test_a_job_whose_pods_end_in_time_stays() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 5}}
    state = reserving(template=template)
    cycle, _ = look(state)
    assert cycle.orders == {}
    ready = state.store.quotas.reserves["team"]
    assert (ready.gpus, ready.ready, ready.lent) == (1, 1, 1)
    assert state.store.quotas.kept == {"team": []}, "pods without a GPUJob may take no GPU that is free, and none is"


def test_who_leaves_a_reserve_goes_on_leaving_in_another_process() -> None:
    notice = {"at": at(20), "by": "reserve/team", "message": "", "count": 0}
    cycle, _ = look(reserving(status={"preemption": notice}))
    assert len(cycle.orders) == 1, "one of the two suffices"


def test_a_job_that_has_left_a_reserve_and_runs_again_may_leave_it_again() -> None:
    left = {"at": None, "by": "reserve/team", "message": "", "count": 1, "lastTime": at(-900)}
    state = reserving(status={"preemption": left})
    assert not any(each.yields_to for each in running_jobs(state, now=NOW))
    assert len(look(state)[0].orders) == 1


@pytest.mark.parametrize(
    ("start", "is_asked"),
    [
        pytest.param(75.0, True, id="a job that ends now has ended when the window begins"),
        pytest.param(3600.0, False, id="until then it goes on"),
    ],
)
def test_jobs_leave_before_a_window_begins(start: float, is_asked: bool) -> None:
    begins = (NOW + timedelta(seconds=start)).strftime("%H:%M")
    window = {"name": "day", "start": begins, "end": "23:59", "gpus": 1}
    quota = make_quota(
        "team", namespaces=["team"], guaranteeWindows=[window], reserve=msgspec.to_builtins(READY.spec)["reserve"]
    )
    # The second look knows how long the pods of those that run take to end.
    state = reserving(quota)
    look(state)
    assert bool(look(state)[0].orders) is is_asked


def test_jobs_leave_before_an_hour_for_which_more_is_forecast() -> None:
    begins = NOW + timedelta(seconds=75)
    hour = {"name": "forecast", "start": begins.strftime("%H:%M"), "end": "23:59", "gpus": 1}
    known = {"since": at(-3600), "hour": at(-60), "windows": [hour]}
    reserve = msgspec.to_builtins(READY.spec)["reserve"]
    quota = make_quota("team", namespaces=["team"], forecast={"gpus": 1}, reserve=reserve)
    found = msgspec.convert({"forecast": known}, GPUQuotaStatus)
    state = reserving(msgspec.structs.replace(quota, status=found))
    look(state)
    orders = look(state)[0].orders
    assert {victim: order.by.key for victim, order in orders.items()} == {"uid-borrows-1": "reserve/team"}


def test_the_reserve_in_question_proves_its_own_notices() -> None:
    state = reserving()
    notices = PreemptionNotices(
        state, caches=caches_for(state), changed=lambda _: None, wake_up=WakeUp(), now=lambda: NOW
    )
    cycle, _ = look(state)
    state.decisions.set_notices(notices_of(cycle.orders, state=state))
    seen = state.observe("idle/borrows-1", now=NOW)
    assert seen is not None
    assert seen.notice is not None
    assert seen.notice.by == "reserve/team"
    assert notices.still_hold(seen)
    assert notices.still_hold(seen), "the proof counts for some seconds"
    state.store.quotas.drop("team")
    later = PreemptionNotices(
        state, caches=caches_for(state), changed=lambda _: None, wake_up=WakeUp(), now=lambda: NOW
    )
    assert not later.still_hold(seen), "without the reserve, nothing ends for it"
