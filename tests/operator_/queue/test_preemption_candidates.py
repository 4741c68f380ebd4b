"""Who may make way, out of the operator's state, and what follows in a look at the queue."""

from datetime import timedelta
from typing import Any

import msgspec

from dovetail.api.gpujob import GPUJob, QueuePlace
from dovetail.queue.preemption.policy import Rules, rules_now
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice
from dovetail_operator.queue.cycle import Cycle, decide, running_jobs, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.preemption_notices import PreemptionNotices, notices_of
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state

RULES = Rules(gap=10, min_run_seconds=60)


def with_boss(**victim: Any) -> State:
    """A full node of two GPUs, and a job of priority 50 that wants both."""
    state = make_state(a=2)
    state.preemption = RULES
    status = {"phase": "Running", "startTime": at(-600)} | victim.pop("status", {})
    run(state, make_job("low", gpu=2, priority=10, status=status, **victim))
    boss = make_job("boss", gpu=2, priority=50)
    state.store.job_changed(boss)
    state.decisions.set_number(boss.metadata.uid, number=2)
    return state


def run(state: State, job: GPUJob) -> None:
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=1)
    state.store.child_changed(make_child(job, uid="child"))
    meta = {"labels": {"dovetail.dev/job": job.metadata.name}, "uid": "pod-low"}
    state.store.pod_event("ADDED", make_pod(devices=2, node="a", owner="child", started=-600, meta=meta))


def look(state: State) -> tuple[Cycle, dict[str, Verdict]]:
    cycle = survey(state, now=NOW)
    return cycle, {verdict.key: verdict for verdict in decide(state, cycle=cycle)}


def test_a_job_of_low_priority_is_told_to_make_way() -> None:
    state = with_boss()
    cycle, found = look(state)
    assert {victim: order.by.key for victim, order in cycle.orders.items()} == {"uid-low": "uid-boss"}
    message = getattr(found["uid-boss"], "message", "")
    assert message == "Need 2 GPUs, only 0 available; 1 job of lower priority is preempted for it"
    notice = notices_of(cycle.orders, state=state)["uid-low"]
    assert (notice.by, notice.message) == ("uid-boss", "Is preempted for boss of priority 50, its own is 10")


def test_who_others_make_way_for_is_not_told_to_wait_for_an_end_of_tomorrow() -> None:
    state = with_boss()
    foreseen = {"uid-boss": QueuePlace(position=1, estimated_start=at(80_000), basis="x")}
    (verdict,) = decide(state, cycle=survey(state, now=NOW), foreseen=foreseen)
    assert isinstance(verdict, Waits)
    assert verdict.queue is not None
    assert verdict.queue.reserved is not None
    assert (
        verdict.queue.estimated_start == verdict.queue.estimated_start_latest == verdict.queue.reserved.time == at(60)
    )
    assert verdict.queue.basis == "The jobs preempted for it have ended by then at the latest"


def test_a_decision_counts_before_the_status_of_the_preempted_job_has_it() -> None:
    state = with_boss()
    state.decisions.set_notices(notices_of(look(state)[0].orders, state=state))
    (low,) = running_jobs(state, now=NOW)
    assert (low.yields_to, low.left) == ("uid-boss", False)


def test_a_job_that_leaves_a_drained_node_ends_for_no_other_one() -> None:
    state = with_boss()
    state.decisions.set_notices({"uid-low": Notice(by=DRAIN, message="Its node is drained", grace_seconds=0)})
    (low,) = running_jobs(state, now=NOW)
    assert low.yields_to == ""


def test_nobody_makes_way_where_it_is_not_switched_on() -> None:
    state = with_boss()
    state.preemption = Rules()
    assert running_jobs(state, now=NOW) == []
    assert look(state)[0].orders == {}


def test_the_name_of_a_job_of_another_namespace_is_not_told() -> None:
    state = with_boss()
    state.store.job_deleted("team/boss", uid="uid-boss")
    other = make_job("boss", gpu=2, priority=50, meta={"namespace": "secret"})
    state.store.job_changed(other)
    state.decisions.set_number("uid-boss", number=2)
    notices = notices_of(look(state)[0].orders, state=state)
    assert notices["uid-low"].message == "Is preempted for a job of another namespace of priority 50, its own is 10"


def test_a_job_that_kueue_has_let_go_makes_way_for_nobody() -> None:
    """Suspended by us Kueue would let it go again at once."""
    state = with_boss(meta={"labels": {"kueue.x-k8s.io/queue-name": "team"}})
    assert running_jobs(state, now=NOW) == []
    assert look(state)[0].orders == {}


def test_a_job_that_is_about_to_end_or_has_not_begun_makes_way_for_nobody() -> None:
    assert look(with_boss(suspend=True))[0].orders == {}
    assert look(with_boss(status={"startTime": at(-30)}))[0].orders == {}


def test_jobs_that_made_way_within_the_hour_are_counted() -> None:
    state = make_state(a=1)
    state.preemption = Rules(gap=10, left=3)
    for name, made in (
        ("recent", {"count": 1, "lastTime": at(-100)}),
        ("old", {"count": 1, "lastTime": at(-4000)}),
        ("now", {"count": 0, "at": at(10), "by": "uid-x"}),
    ):
        state.store.job_changed(make_job(name, status={"phase": "Running", "preemption": made}))
    assert rules_now(state.preemption, jobs=state.store.jobs.values(), now=NOW).left == 1
    assert rules_now(state.preemption, jobs=state.store.jobs.values(), now=NOW + timedelta(hours=2)).left == 2


def still_makes_way(state: State, *, by: str = "uid-boss") -> bool:
    """Whether the low job, which was told to make way for `by`, is ended when its time has come."""
    notices = PreemptionNotices(
        state, caches=caches_for(state), changed=lambda _key: None, wake_up=WakeUp(), now=lambda: NOW
    )
    state.decisions.set_notices({"uid-low": Notice(by=by, message="", grace_seconds=30)})
    seen = state.observe("team/low", now=NOW)
    assert seen is not None
    return notices.still_hold(seen)


def test_a_job_is_ended_only_while_the_start_of_the_one_that_it_was_told_of_is_proven() -> None:
    assert still_makes_way(with_boss())
    assert not still_makes_way(with_boss(), by="uid-other"), "it was told of another"
    gone = with_boss()
    gone.store.job_deleted("team/boss", uid="uid-boss")
    assert not still_makes_way(gone), "nobody wants its place any more"
    held = with_boss()
    held.store.job_changed(
        make_job("boss", gpu=2, priority=50, suspend=True, meta={"resourceVersion": "11", "generation": 2})
    )
    assert not still_makes_way(held)


def test_once_the_victim_is_suspended_the_other_is_let_go_over_its_devices() -> None:
    state = with_boss()
    made = {"count": 1, "lastTime": at(0), "by": "uid-boss"}
    low = make_job(
        "low", gpu=2, priority=10, meta={"resourceVersion": "11"}, status={"phase": "Preempted", "preemption": made}
    )
    state.store.job_changed(low)
    child = make_child(low, uid="child", suspend=True)
    newer = msgspec.structs.replace(child.metadata, resource_version="30")
    state.store.child_changed(msgspec.structs.replace(child, metadata=newer))
    _, found = look(state)
    boss = found["uid-boss"]
    assert isinstance(boss, Admitted)
    assert [claim.node for claim in boss.claims] == ["a"]


def returned(**status: Any) -> State:
    """The boss waits again; a job that left for it a minute ago waits too, and another runs in its place."""
    state = with_boss()
    made = {"by": "uid-boss", "count": 1, "lastTime": at(-60)}
    state.store.job_changed(make_job("gone", gpu=2, priority=10, status={"phase": "Preempted", "preemption": made}))
    state.store.job_changed(make_job("boss", gpu=2, priority=50, status=status, meta={"resourceVersion": "11"}))
    return state


def test_who_sent_somebody_away_and_did_not_start_sends_nobody_else_away() -> None:
    assert look(returned())[0].orders == {}
    earlier = {
        "number": 1,
        "reason": "Failed",
        "message": "x",
        "counted": True,
        "startTime": at(-300),
        "endTime": at(-200),
    }
    assert look(returned(attempts=[earlier]))[0].orders == {}
    assert look(returned(admittedTime=at(-300), earlierRunSeconds=20))[0].orders == {}
    assert look(returned(admittedTime=at(-50)))[0].orders == {}, "its plan was overtaken before it ran"


def test_who_has_had_its_run_and_waits_anew_may_send_others_away() -> None:
    failed = {
        "number": 1,
        "reason": "Failed",
        "message": "x",
        "counted": True,
        "startTime": at(-40),
        "endTime": at(-20),
    }
    made_way = {"count": 1, "lastTime": at(-10), "by": "uid-other"}
    held = {"admittedTime": at(-60), "earlierRunSeconds": 20}
    for status in ({"attempts": [failed]}, {"preemption": made_way}, held):
        assert set(look(returned(**status))[0].orders) == {"uid-low"}
