"""A job makes way: each step from what the API server has, whenever it was broken off."""

from dataclasses import replace
from typing import Any

import msgspec

from dovetail.api.gpujob import Preemption
from dovetail_operator.job.actions import PatchJob
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.lifecycle.preemption import is_due, to_notify
from dovetail_operator.lifecycle.reconcile import Outcome, is_status_first, reconcile
from dovetail_operator.manifests.batch_job import with_notice
from tests.operator_.builders import LET_GO, NO_ROOM, NOW, at, condition, make_child, make_job, make_pod, see

NOTICE = Notice(by="uid-boss", message="Is preempted for boss of priority 50, its own is 10", grace_seconds=30)


AT_ONCE = replace(NOTICE, grace_seconds=0)
COUNTED = Preemption(count=1, last_time=at(0), by="uid-boss", message=NOTICE.message)


def told(seconds: float = 31, **fields: Any) -> dict[str, Any]:
    return {"at": at(seconds), "by": "uid-boss", "message": NOTICE.message} | fields


def running(
    *, notice: Notice | None = NOTICE, preemption: dict[str, Any] | None = None, phase: str = "Running", **pod: Any
) -> Observed:
    status = {"phase": phase, "startTime": at(-600)} | ({"preemption": preemption} if preemption else {})
    job = make_job(status=status)
    return replace(see(job, make_pod(started=-600, **pod), child=make_child(job)), notice=notice)


def suspended(*, preemption: dict[str, Any], phase: str = "Running", **spec: Any) -> Observed:
    job = make_job(status={"phase": phase, "startTime": at(-600), "preemption": preemption}, **spec)
    return see(job, child=make_child(job, suspend=True), verdict=NO_ROOM)


def suspends(outcome: Outcome) -> bool:
    return PatchJob(spec={"suspend": True}, disrupts=True) in outcome.actions


def test_first_the_status_says_when_and_for_whom() -> None:
    outcome = reconcile(running())
    assert outcome.status.phase == "Running"
    made = outcome.status.preemption
    assert made == Preemption(at=at(31), by="uid-boss", message=NOTICE.message)
    assert outcome.status.message == f"{NOTICE.message}: its workers are ended at {at(31)}"
    assert (outcome.actions, outcome.notify) == ((), ())
    assert outcome.wake_at is not None
    assert outcome.wake_at.strftime("%Y-%m-%dT%H:%M:%SZ") <= at(31)


def test_then_the_pods_are_told_and_nothing_else_happens() -> None:
    outcome = reconcile(running(preemption=told()))
    assert [(each.pod.metadata.name, each.at) for each in outcome.notify] == [("x-0-running", at(31))]
    assert not suspends(outcome)
    assert outcome.status.message == f"{NOTICE.message}: its workers are ended at {at(31)}"
    assert outcome.status.preemption == Preemption(at=at(31), by="uid-boss", message=NOTICE.message)


def test_pods_that_know_are_not_told_again() -> None:
    meta = {"annotations": {"dovetail.dev/preempting-at": at(31)}}
    assert reconcile(running(preemption=told(), meta=meta)).notify == ()


def test_when_the_time_has_come_its_batch_job_is_suspended() -> None:
    outcome = reconcile(running(preemption=told(0)))
    assert suspends(outcome)
    assert (outcome.status.phase, outcome.status.reason) == ("Preempted", "Priority")
    made = outcome.status.preemption
    assert made is not None
    assert (made.count, made.last_time, made.at, made.by) == (1, at(0), None, "uid-boss")


def test_without_a_grace_period_one_write_is_notice_and_end_and_the_suspension_waits_until_it_is_seen() -> None:
    outcome = reconcile(running(notice=AT_ONCE))
    assert outcome.actions == ()
    assert (outcome.status.phase, outcome.status.reason, outcome.status.message) == (
        "Preempted",
        "Priority",
        NOTICE.message,
    )
    assert outcome.status.preemption == Preemption(at=at(0), by="uid-boss", message=NOTICE.message)
    assert (outcome.notify, outcome.wake_at) == ((), NOW)


def test_once_that_write_is_seen_the_job_ends_if_the_proof_holds_and_is_counted_then() -> None:
    seen = running(notice=AT_ONCE, preemption=told(0), phase="Preempted")
    outcome = reconcile(seen)
    assert is_due(seen)
    assert suspends(outcome)
    assert not is_status_first(seen, outcome=outcome), "an end that did not come about is not counted"
    assert outcome.status.preemption == COUNTED


def test_without_a_proof_a_job_whose_status_has_that_write_goes_on() -> None:
    outcome = reconcile(running(notice=None, preemption=told(0), phase="Preempted"))
    assert not suspends(outcome)
    assert (outcome.status.phase, outcome.status.preemption) == ("Running", Preemption())


def test_a_notice_for_another_job_without_a_grace_period_ends_the_job_for_that_one() -> None:
    outcome = reconcile(running(notice=replace(AT_ONCE, by="uid-other"), preemption=told(31)))
    assert outcome.status.phase == "Preempted"
    assert outcome.status.preemption == Preemption(at=at(0), by="uid-other", message=NOTICE.message)


def test_a_job_that_has_ended_in_one_write_is_counted_with_the_next_one() -> None:
    seen = suspended(preemption=told(-10), phase="Preempted")
    outcome = reconcile(replace(seen, notice=AT_ONCE))
    assert (outcome.actions, outcome.status.phase, outcome.status.reason) == ((), "Preempted", NO_ROOM.reason)
    assert outcome.status.preemption == msgspec.structs.replace(COUNTED, last_time=at(-10))
    assert not is_status_first(seen, outcome=outcome), "that write may wait"


def test_a_job_that_is_held_before_that_write_is_counted_too() -> None:
    outcome = reconcile(suspended(preemption=told(-10), phase="Preempted", suspend=True))
    assert outcome.status.phase == "Suspended"
    assert outcome.status.preemption == Preemption(count=1, last_time=at(-10))


def test_a_job_that_runs_again_before_that_write_is_counted_before_it_does() -> None:
    seen = replace(suspended(preemption=told(-10), phase="Preempted"), verdict=LET_GO)
    outcome = reconcile(seen)
    assert outcome.actions
    assert is_status_first(seen, outcome=outcome)
    assert (outcome.status.phase, outcome.status.preemption) == ("Starting", Preemption(count=1, last_time=at(-10)))


def test_a_job_that_was_ended_on_time_and_starts_again_before_its_end_is_counted_is_counted_first() -> None:
    seen = replace(suspended(preemption=told(-10)), verdict=LET_GO)
    outcome = reconcile(seen)
    assert outcome.actions
    assert is_status_first(seen, outcome=outcome)
    assert (outcome.status.phase, outcome.status.preemption) == ("Starting", Preemption(count=1, last_time=at(0)))


def test_a_job_that_is_suspended_before_its_time_or_by_its_owner_is_not_counted() -> None:
    early = replace(suspended(preemption=told(10)), verdict=LET_GO)
    held = suspended(preemption=told(-10), suspend=True)
    assert [reconcile(each).status.preemption for each in (early, held)] == [Preemption(), Preemption()]


def test_a_job_that_succeeds_before_it_is_suspended_is_not_counted() -> None:
    job = make_job(status={"phase": "Preempted", "startTime": at(-600), "preemption": told(0)})
    child = make_child(job, status={"conditions": [condition("Complete")]})
    outcome = reconcile(replace(see(job, child=child), notice=AT_ONCE))
    assert (outcome.status.phase, outcome.status.preemption) == ("Succeeded", Preemption())


def test_without_a_proof_nothing_is_ended_and_the_notice_is_taken_back() -> None:
    seen = running(notice=None, preemption=told(0))
    assert not is_due(seen)
    outcome = reconcile(seen)
    assert not suspends(outcome)
    assert outcome.status.phase == "Running"
    assert outcome.status.preemption == Preemption()


def test_a_notice_that_is_taken_back_is_taken_from_the_pods_too() -> None:
    meta = {"annotations": {"dovetail.dev/preempting-at": at(31)}}
    seen = running(notice=None, preemption={"count": 0}, meta=meta)
    assert [each.at for each in to_notify(seen)] == [None]


def test_a_priority_that_changes_meanwhile_changes_what_is_said_and_not_when() -> None:
    outcome = reconcile(running(preemption=told(message="Is preempted for boss of priority 90, its own is 10")))
    assert outcome.status.preemption == Preemption(at=at(31), by="uid-boss", message=NOTICE.message)


def test_a_proof_for_another_job_gives_it_all_its_time_again() -> None:
    outcome = reconcile(running(notice=replace(NOTICE, by="uid-other"), preemption=told(0)))
    assert not suspends(outcome)
    made = outcome.status.preemption
    assert made is not None
    assert (made.at, made.by) == (at(31), "uid-other")


def test_a_kill_between_the_suspension_and_the_status_counts_it_once() -> None:
    first = reconcile(suspended(preemption=told(0)))
    assert (first.status.phase, first.status.preemption) == (
        "Preempted",
        Preemption(count=1, last_time=at(0), by="uid-boss", message=NOTICE.message),
    )
    again = reconcile(suspended(preemption={"count": 1, "lastTime": at(0), "by": "uid-boss"}))
    assert again.status.phase == "Preempted"
    assert again.status.preemption is not None
    assert again.status.preemption.count == 1


def test_while_it_waits_it_is_told_the_queues_reason() -> None:
    outcome = reconcile(suspended(preemption={"count": 1, "lastTime": at(-60), "by": "uid-boss"}))
    assert (outcome.status.phase, outcome.status.reason, outcome.status.message) == (
        "Preempted",
        NO_ROOM.reason,
        NO_ROOM.message,
    )


def test_once_it_runs_again_only_the_count_is_left() -> None:
    outcome = reconcile(running(notice=None, preemption={"count": 2, "lastTime": at(-60), "by": "uid-boss"}))
    assert outcome.status.phase == "Running"
    assert outcome.status.preemption == Preemption(count=2, last_time=at(-60))


def test_a_job_that_is_held_meanwhile_makes_way_for_nobody() -> None:
    outcome = reconcile(suspended(preemption=told(0), suspend=True))
    assert outcome.status.phase == "Suspended"
    assert outcome.status.preemption == Preemption()


def test_the_first_container_has_a_file_that_shows_the_notice() -> None:
    spec = with_notice({"containers": [{"name": "main"}, {"name": "side"}]})
    first, side = spec["containers"]
    assert first["volumeMounts"] == [{"name": "dovetail-notice", "mountPath": "/etc/dovetail", "readOnly": True}]
    assert "volumeMounts" not in side
    (item,) = spec["volumes"][0]["downwardAPI"]["items"]
    assert item["path"] == "preempting-at"
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['dovetail.dev/preempting-at']"


def test_a_pod_that_has_something_else_there_keeps_it() -> None:
    mount = {"name": "mine", "mountPath": "/etc/dovetail"}
    spec = {"containers": [{"name": "main", "volumeMounts": [mount]}], "volumes": [{"name": "mine"}]}
    assert with_notice(spec) == spec
