"""The move of a job in its status: each step from what the API server has."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import Move
from dovetail.engine.model.claims import Claim
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.lifecycle.reconcile import is_status_first, reconcile
from tests.core.engine.builders import make_ask
from tests.operator_.builders import NO_ROOM, at, make_child, make_job, make_pod, see

ROOM: dict[str, Any] = {
    "time": at(120),
    "nodes": [{"name": "b", "workers": 1}],
    "kept": [{"name": "b", "keeps": ["1"]}],
}
BEGUN: dict[str, Any] = {"by": "uid-big", "reserved": ROOM}
PLANNED = msgspec.convert(BEGUN, Move)
THERE = Admitted(key="uid-x", claims=(Claim(key="uid-x/0", node="b"),), ask=make_ask("1"))
NOTICE = Notice(by="uid-big", message="Restarts on other nodes", grace_seconds=2, moves=True)


def running(*, move: dict[str, Any] | None = None, phase: str = "Running", **status: Any) -> Observed:
    known = {"phase": phase, "startTime": at(-600), **status} | ({"move": move} if move else {})
    job = make_job(status=known)
    return see(job, make_pod(started=-600), child=make_child(job))


def waiting(*, move: dict[str, Any], phase: str = "Preempted", **fields: Any) -> Observed:
    preemption = {"count": 1, "lastTime": at(-5), "by": "uid-big", "message": "Restarts on other nodes"}
    job = make_job(status={"phase": phase, "startTime": at(-600), "preemption": preemption, "move": move})
    return see(job, child=make_child(job, suspend=True), **fields)


def test_first_the_status_names_the_room_elsewhere_and_nothing_ends() -> None:
    outcome = reconcile(replace(running(), move=PLANNED))
    assert outcome.status.move == PLANNED
    assert (outcome.actions, outcome.status.phase, outcome.status.preemption) == ((), "Running", None)


def test_then_it_ends_by_its_notice_and_the_move_is_counted() -> None:
    preemption = {"at": at(0), "by": "uid-big", "message": NOTICE.message}
    outcome = reconcile(replace(running(move=BEGUN, preemption=preemption), notice=NOTICE))
    assert (outcome.status.phase, outcome.status.reason) == ("Preempted", "Fragmentation")
    assert outcome.status.move == msgspec.structs.replace(PLANNED, count=1, last_time=at(0))


def test_while_it_waits_the_room_stays_and_nothing_is_counted_again() -> None:
    ended = {**BEGUN, "count": 1, "lastTime": at(-5)}
    assert reconcile(waiting(move=ended, verdict=NO_ROOM)).status.move == msgspec.convert(ended, Move)


def test_the_plan_of_the_run_there_takes_the_place_of_what_was_held_in_one_write_before_the_start() -> None:
    seen = waiting(move={**BEGUN, "count": 1, "lastTime": at(-5)}, verdict=THERE)
    outcome = reconcile(seen)
    assert outcome.status.placement is not None
    assert outcome.status.move == Move(count=1, last_time=at(-5), by="uid-big")
    assert is_status_first(seen, outcome=outcome)


@pytest.mark.parametrize(
    ("move", "phase", "over"),
    [
        ({"by": "uid-big", "count": 1}, "Starting", True),
        (BEGUN, "Running", False),
    ],
    ids=["its run elsewhere has begun", "it still runs where it was"],
)
def test_a_move_is_over_once_the_run_elsewhere_begins(move: dict[str, Any], phase: str, over: bool) -> None:
    status = reconcile(running(move=move, phase=phase)).status
    assert status.phase == "Running"
    assert status.move is not None
    assert (not status.move.by) is over


def test_a_move_that_is_given_up_leaves_the_run_as_it_is() -> None:
    given_up = Move(message="The job for which it was to move no longer starts by that")
    outcome = reconcile(replace(running(move=BEGUN), move=given_up))
    assert outcome.status.move == given_up
    assert outcome.actions == ()


@pytest.mark.parametrize("edit", [{"suspend": True}, {"cancel": True}], ids=str)
def test_a_job_that_is_held_or_cancelled_gives_the_room_back(edit: dict[str, Any]) -> None:
    job = make_job(status={"phase": "Running", "startTime": at(-600), "move": BEGUN}, **edit)
    status = reconcile(see(job, make_pod(started=-600), child=make_child(job))).status
    assert status.move == Move()
