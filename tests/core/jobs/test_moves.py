"""Who may move, how often and for whom."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.gpujob import Move
from dovetail.jobs.moves import MoveRules, MovesOfDeleted, is_requested, moved, under_way
from tests.operator_.builders import NOW, at, make_job

RULES = MoveRules(by_namespace={"team": "Restart"}, rest_seconds=600)


@pytest.mark.parametrize(
    ("rules", "spec", "may"),
    [
        (MoveRules(), {}, False),
        (MoveRules(), {"moves": "Restart"}, True),
        (MoveRules(default="Restart"), {}, True),
        (MoveRules(default="Restart"), {"moves": "Never"}, False),
        (RULES, {}, True),
        (MoveRules(default="Restart", by_namespace={"team": "Never"}), {}, False),
    ],
)
def test_the_job_decides_then_its_namespace_then_the_default(rules: MoveRules, spec: dict[str, Any], may: bool) -> None:
    assert rules.lets_move(make_job(**spec), now=NOW) is may


@pytest.mark.parametrize(
    ("move", "may"),
    [
        ({"count": 1, "lastTime": at(-599)}, False),
        ({"count": 1, "lastTime": at(-600)}, True),
        ({"by": "uid-big"}, False),
    ],
    ids=["moved a moment ago", "has rested", "moves now"],
)
def test_a_job_rests_between_two_moves(move: dict[str, Any], may: bool) -> None:
    assert RULES.lets_move(make_job(status={"move": move}), now=NOW) is may


def test_the_moves_of_the_last_hour_count_against_the_budget() -> None:
    moved = [make_job(f"j{at_}", status={"move": {"count": 1, "lastTime": at(-at_)}}) for at_ in (60, 3599, 3601)]
    assert MoveRules(per_hour=3).left([*moved, make_job("new")], now=NOW) == 1
    assert MoveRules(per_hour=1).left(moved, now=NOW) == 0


def test_each_move_of_a_job_counts_once() -> None:
    room = {"time": at(60), "nodes": [{"name": "b", "workers": 1}]}
    twice = {"count": 3, "lastTime": at(-60), "earlierTimes": [at(-3601), at(-1800)]}
    begins = twice | {"by": "uid-big", "reserved": room}
    for phase, move, counts in (
        ("Running", twice, 2),
        ("Running", begins, 3),
        # Its last time is that of this move.
        ("Preempted", begins, 2),
        ("Starting", begins | {"reserved": None}, 2),
    ):
        job = make_job(status={"phase": phase, "move": move})
        assert MoveRules(per_hour=9).left([job], now=NOW) == 9 - counts, (phase, move)


def test_a_move_keeps_the_times_of_the_hour_before_it() -> None:
    move = Move()
    for minutes in (0, 30, 59, 61):
        move = moved(move, now=NOW + timedelta(minutes=minutes))
    assert (move.count, move.last_time, move.earlier_times) == (4, at(3660), [at(1800), at(3540)])


def test_all_moves_of_a_deleted_job_count() -> None:
    deleted, move = MovesOfDeleted(), {"count": 5, "lastTime": at(-60), "earlierTimes": [at(-3601), at(-120)]}
    deleted.drop(make_job("gone", status={"move": move}))
    assert deleted.times(now=NOW) == {"uid-gone": at(-60), "uid-gone/4": at(-120)}


def test_moves_of_deleted_jobs_count_too() -> None:
    deleted = MovesOfDeleted()
    for name, seconds in (("gone", -60), ("before", -3601)):
        deleted.drop(make_job(name, status={"move": {"count": 1, "lastTime": at(seconds)}}))
    deleted.drop(make_job("never"))
    assert deleted.times(now=NOW) == {"uid-gone": at(-60)}
    assert MoveRules(per_hour=3).left([], now=NOW, of_deleted=len(deleted.times(now=NOW))) == 2


@pytest.mark.parametrize(("priority", "seconds"), [(0, 300), (9, 300), (10, 60), (99, 60), (100, 5), (255, 5)])
def test_the_class_of_its_priority_says_how_long_a_job_waits(priority: int, seconds: float) -> None:
    assert MoveRules(patience_seconds={100: 5, 10: 60}).waits_seconds(priority) == seconds


@pytest.mark.parametrize(("seconds", "counts"), [(0, True), (-599, True), (-601, False), (700, False)], ids=str)
def test_a_request_counts_for_ten_minutes(seconds: int, counts: bool) -> None:
    job = make_job(moveRequestTime=at(seconds))
    assert is_requested(job, now=NOW) is counts
    assert not is_requested(job, now=NOW + timedelta(hours=1))
    assert not is_requested(make_job(), now=NOW)


def test_a_move_is_under_way_from_its_reservation_to_its_run() -> None:
    assert under_way(make_job(status={"move": {"by": "uid-big"}}).status.move)
    assert not under_way(make_job(status={"move": {"count": 2}}).status.move)
    assert not under_way(None)
