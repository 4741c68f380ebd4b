"""The table of decisions: each column keeps the jobs apart, and forgets what no longer holds."""

from datetime import timedelta

import pytest

from dovetail.api.gpujob import Placement, PlannedWorker
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.job.observation import Notice
from dovetail_operator.state.decisions import Decisions
from tests.operator_.builders import LET_GO, NO_ROOM, NOW, make_job

NOTICE = Notice(by="uid-y", message="", grace_seconds=30)
SECOND = timedelta(seconds=1)
A, B = make_job("a"), make_job("b")
KEYS = (A.metadata.uid, B.metadata.uid)
PLAN = Placement(generation=1, nodes=[], worker=PlannedWorker(request="1", mode="Exclusive"))


@pytest.fixture
def table() -> Decisions:
    return Decisions()


def test_verdicts_are_kept_of_the_jobs_that_wait_and_withdrawn_one_by_one(table: Decisions) -> None:
    for uid in (*KEYS, "uid-c"):
        table.set_verdict(uid, verdict=NO_ROOM)
    table.keep_verdicts(set(KEYS))
    assert list(table.verdicts) == list(KEYS)
    table.withdraw_verdict(A.metadata.uid)
    table.withdraw_verdict(A.metadata.uid)
    assert list(table.verdicts) == [B.metadata.uid]


def test_a_cycle_replaces_the_notices_and_overtaken_plans_of_the_one_before(table: Decisions) -> None:
    notices, overtaken = {"uid-a": NOTICE}, {"uid-a": "no room"}
    table.set_notices({"uid-b": NOTICE})
    table.set_overtaken({"uid-b": "refused"})
    table.set_notices(notices)
    table.set_overtaken(overtaken)
    notices.clear()
    overtaken.clear()
    assert (table.notices, table.overtaken) == ({"uid-a": NOTICE}, {"uid-a": "no room"})
    table.withdraw_notice("uid-a")
    table.withdraw_notice("uid-a")
    assert table.notices == {}


@pytest.mark.parametrize("of", ["starting", "ended"])
def test_a_rush_of_64_lasts_fifteen_seconds_longer_than_what_it_consists_of(table: Decisions, of: str) -> None:
    def cycle(count: int, *, seconds: float = 0.0) -> bool:
        counts = {"starting": 0, "ended": 0, of: count}
        table.set_at_work(**counts, now=NOW + timedelta(seconds=seconds))
        return table.is_rush

    assert not cycle(63)
    assert cycle(64)
    assert cycle(65, seconds=20)
    assert cycle(63, seconds=34.9)
    assert not cycle(63, seconds=35)


def test_what_lasts_longer_than_five_minutes_is_no_rush_until_it_ends_and_begins_anew(table: Decisions) -> None:
    def cycle(minutes: float, *, starting: int) -> bool:
        table.set_at_work(starting=starting, ended=0, now=NOW + timedelta(minutes=minutes))
        return table.is_rush

    assert all(cycle(minutes / 10, starting=500) for minutes in range(50))
    assert cycle(5.0, starting=500), "it lasts fifteen seconds longer"
    assert not cycle(5.5, starting=500)
    table.set_notices({f"uid-{at}": NOTICE for at in range(64)})
    assert not cycle(60.0, starting=500)
    table.set_notices({})
    assert not cycle(61.0, starting=63)
    assert cycle(62.0, starting=64)


def test_64_jobs_that_are_to_end_are_a_rush_at_once_and_for_fifteen_seconds_after_a_cycle_saw_them(
    table: Decisions,
) -> None:
    table.set_notices({f"uid-{at}": NOTICE for at in range(63)})
    assert not table.is_rush
    table.set_notices({f"uid-{at}": NOTICE for at in range(64)})
    assert table.is_rush
    table.set_at_work(starting=0, ended=0, now=NOW)
    table.set_notices({})
    assert table.is_rush
    table.set_at_work(starting=0, ended=0, now=NOW + timedelta(seconds=15))
    assert not table.is_rush


def test_a_refused_job_loses_its_verdict_and_no_other_does(table: Decisions) -> None:
    for uid in KEYS:
        table.set_verdict(uid, verdict=LET_GO)
    table.refuse(A, obstacle=Obstacle(message="no"))
    assert list(table.verdicts) == [B.metadata.uid]
    assert (table.refusal_of(A, now=NOW), table.refusal_of(B, now=NOW)) == (Obstacle(message="no"), None)


def test_a_refusal_with_a_time_ends_at_that_time_and_one_without_stays(table: Decisions) -> None:
    short = Obstacle(message="rest", until=NOW + SECOND)
    table.refuse(A, obstacle=short)
    table.refuse(B, obstacle=Obstacle(message="no"))
    assert (table.refusal_of(A, now=NOW), table.refusal_of(A, now=NOW + SECOND)) == (short, None)
    table.expire_refusals(now=NOW)
    assert A.metadata.uid in table.held
    table.expire_refusals(now=NOW + SECOND)
    assert A.metadata.uid not in table.held
    assert B.metadata.uid in table.held


def test_an_edited_job_is_refused_no_more_until_it_is_refused_again(table: Decisions) -> None:
    edited = make_job("a", meta={"generation": 2})
    table.refuse(A, obstacle=Obstacle(message="no"))
    assert table.refusal_of(edited, now=NOW) is None
    table.refuse(edited, obstacle=Obstacle(message="still no"))
    assert table.refusal_of(edited, now=NOW) == Obstacle(message="still no")
    table.retry(edited)
    table.retry(edited)
    assert table.refusal_of(edited, now=NOW) is None


def test_a_failure_withdraws_the_verdict_only_when_it_is_new(table: Decisions) -> None:
    table.set_verdict(A.metadata.uid, verdict=LET_GO)
    assert table.record_failure(A, error=ValueError("x"))
    assert A.metadata.uid not in table.verdicts
    table.set_verdict(A.metadata.uid, verdict=NO_ROOM)
    assert not table.record_failure(A, error=ValueError("x"))
    assert table.verdicts == {A.metadata.uid: NO_ROOM}


def test_a_job_is_left_alone_while_it_only_waits(table: Decisions) -> None:
    uid = A.metadata.uid
    assert uid not in table.held
    table.set_verdict(uid, verdict=NO_ROOM)
    assert uid not in table.held
    table.set_verdict(uid, verdict=LET_GO)
    assert uid in table.held
    table.withdraw_verdict(uid)
    table.record_failure(A, error=ValueError("x"))
    assert uid in table.held


def test_idle_jobs_are_told_apart_and_those_without_devices_are_dropped(table: Decisions) -> None:
    for uid in (*KEYS, "uid-c"):
        table.set_idle(uid, since=NOW)
    assert [table.clear_idle("uid-c"), table.clear_idle("uid-c")] == [True, False]
    table.keep_idle({A.metadata.uid})
    assert table.idle == {A.metadata.uid: NOW}


def test_kueue_s_messages_are_by_batch_job_and_an_empty_one_clears(table: Decisions) -> None:
    messages = {"child-a": "no quota", "child-b": "no quota"}
    table.replace_kueue(messages)
    messages.clear()
    table.set_kueue("child-a", message="")
    table.set_kueue("child-a", message="")
    table.set_kueue("child-c", message="inactive")
    assert table.kueue == {"child-b": "no quota", "child-c": "inactive"}
    table.replace_kueue({})
    assert table.kueue == {}


def test_a_deleted_job_leaves_no_decision_and_takes_none_of_another(table: Decisions) -> None:
    for job in (A, B):
        table.record_failure(job, error=ValueError("x"))
        table.refuse(job, obstacle=Obstacle(message="no"))
        table.set_verdict(job.metadata.uid, verdict=NO_ROOM)
        table.set_number(job.metadata.uid, number=3)
    table.set_notices(dict.fromkeys(KEYS, NOTICE))
    table.set_overtaken(dict.fromkeys(KEYS, "no room"))
    table.set_replacements(dict.fromkeys(KEYS, PLAN))
    for uid in KEYS:
        table.set_reshape_problem(uid, message="the agent is away")
    table.drop(A)
    for column in (table.verdicts, table.notices, table.overtaken, table.numbers, table.replacements):
        assert list(column) == [B.metadata.uid]
    assert [table.reshape_problem(uid) for uid in KEYS] == ["", "the agent is away"]
    assert (A.metadata.uid in table.failures.uids, B.metadata.uid in table.failures.uids) == (False, True)
    assert (table.refusal_of(A, now=NOW), A.metadata.uid in table.held) == (None, False)
