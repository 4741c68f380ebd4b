"""Which verdicts reach a job's status, and when: by reason, rank, estimate and reserved room."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import KeptOnNode, QueuePlace, ReservedRoom
from dovetail.queue.verdicts import Verdict, Waits
from dovetail_operator.queue.verdict_updates import RENEWED_JOBS, VerdictPacing, VerdictUpdates
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.decisions import Decisions
from tests.operator_.builders import LET_GO, at
from tests.virtual_time import run


def waits(reason: Any = "Resources", message: str = "", **place: Any) -> Waits:
    return Waits(key="uid-x", reason=reason, message=message, queue=QueuePlace(position=1, **place) if place else None)


def room(*nodes: str) -> ReservedRoom:
    return ReservedRoom(
        time=at(0), nodes=[], kept=[KeptOnNode(name=name, keeps=["1"]) for name in nodes], mode="Exclusive"
    )


KNOWN = waits(message="as it was")


def is_held_back(verdict: Verdict, before: Verdict | None, *, rank: int = 0, after: float = 1.0) -> bool:
    """Whether a verdict is held back that comes that long after the one before."""
    pacing = VerdictPacing()
    pacing.hold_back(before or LET_GO, before=None, rank=0, now=1000.0)
    return pacing.hold_back(verdict, before=before, rank=rank, now=1000.0 + after)


@pytest.mark.parametrize(
    ("verdict", "before", "rank", "held"),
    [
        pytest.param(KNOWN, None, 0, False, id="the first"),
        pytest.param(waits(message="new"), KNOWN, 0, True, id="another number"),
        pytest.param(waits("Quota"), KNOWN, 0, False, id="another reason"),
        pytest.param(waits("Quota"), KNOWN, RENEWED_JOBS, False, id="another reason far back"),
        pytest.param(LET_GO, KNOWN, 0, False, id="it may start"),
        pytest.param(KNOWN, LET_GO, RENEWED_JOBS, False, id="it may not start any more"),
        pytest.param(waits(estimated_start=at(9)), KNOWN, 0, True, id="the first estimate"),
        pytest.param(waits(estimated_start=at(9)), waits(basis="x"), 0, True, id="the first estimate with a place"),
        pytest.param(waits(estimated_start=at(9)), waits(estimated_start=at(8)), 0, True, id="another estimate"),
        pytest.param(waits(basis="x"), waits(estimated_start=at(8)), 0, True, id="an estimate that is gone"),
        pytest.param(KNOWN, waits(estimated_start=at(8)), 0, True, id="a place that is gone"),
        pytest.param(waits(reserved=room("a")), waits(basis="x"), 0, False, id="reserved room"),
        pytest.param(waits(reserved=room("b")), waits(reserved=room("a")), 0, False, id="other reserved room"),
        pytest.param(waits(reserved=room("a")), waits(reserved=room("a")), 0, True, id="the same reserved room"),
        pytest.param(waits(basis="x"), waits(reserved=room("a")), 0, False, id="no reserved room any more"),
        pytest.param(KNOWN, waits(reserved=room("a")), 0, False, id="no place with reserved room any more"),
    ],
)
def test_a_verdict_is_held_back_where_it_is(verdict: Verdict, before: Verdict | None, rank: int, held: bool) -> None:
    assert is_held_back(verdict, before, rank=rank) is held


@pytest.mark.parametrize("news", [waits(message="new"), waits(estimated_start=at(9))], ids=["number", "estimate"])
@pytest.mark.parametrize(
    ("after", "rank", "held"),
    [(29.9, 0, True), (30.0, 0, False), (30.0, RENEWED_JOBS - 1, False), (30.0, RENEWED_JOBS, True)],
)
def test_numbers_and_estimates_of_the_first_jobs_are_renewed_after_thirty_seconds(
    news: Verdict, after: float, rank: int, held: bool
) -> None:
    assert is_held_back(news, KNOWN, rank=rank, after=after) is held


def test_a_verdict_that_is_held_back_does_not_begin_the_pause_again() -> None:
    pacing = VerdictPacing()
    pacing.hold_back(KNOWN, before=None, rank=0, now=100.0)
    found = [
        pacing.hold_back(waits(message="new"), before=KNOWN, rank=0, now=now) for now in (110.0, 120.0, 130.0, 131.0)
    ]
    assert found == [True, True, False, True]


@pytest.mark.parametrize(("now", "seconds"), [(110.0, 20.0), (124.0, 6.0), (126.0, 5.0), (200.0, 5.0)])
def test_a_job_is_renewed_when_its_pause_ends_and_those_of_five_seconds_share_a_cycle(
    now: float, seconds: float
) -> None:
    pacing = VerdictPacing()
    pacing.hold_back(KNOWN, before=None, rank=0, now=100.0)
    assert pacing.renewed_in("uid-x", now=now) == seconds


def test_a_job_that_left_the_queue_has_no_pause_when_it_comes_back() -> None:
    pacing = VerdictPacing()
    for key in ("uid-x", "uid-y"):
        pacing.hold_back(msgspec.structs.replace(KNOWN, key=key), before=None, rank=0, now=100.0)
    pacing.forget_all_but({"uid-y"})
    assert not pacing.hold_back(waits(message="new"), before=KNOWN, rank=0, now=101.0)
    assert pacing.renewed_in("uid-y", now=101.0) == 29.0


@dataclass
class Desk:
    """The updates of a table of decisions, and which jobs were marked."""

    wake_up: WakeUp = field(default_factory=WakeUp)
    decisions: Decisions = field(default_factory=Decisions)
    changed: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.updates = VerdictUpdates(
            self.decisions, changed=self.changed.append, admitted=self.admitted.append, wake_up=self.wake_up
        )

    def update(self, verdict: Verdict, *, rank: int = 0, at_once: bool = False) -> None:
        before = self.decisions.verdicts.get("uid-x")
        self.updates.update(verdict, before=before, rank=rank, key="team/x", at_once=at_once)

    def seconds_until_next(self) -> float | None:
        timer = self.wake_up._timer
        return None if timer is None else timer.when() - asyncio.get_running_loop().time()


async def test_a_job_that_may_start_is_marked_as_such_and_any_other_as_changed() -> None:
    desk = Desk()
    desk.update(KNOWN)
    desk.update(LET_GO)
    assert (desk.changed, desk.admitted, desk.decisions.verdicts) == (["team/x"], ["team/x"], {"uid-x": LET_GO})
    assert desk.seconds_until_next() is None


@pytest.mark.parametrize(("rank", "comes"), [(0, True), (RENEWED_JOBS - 1, True), (RENEWED_JOBS, False)])
async def test_a_verdict_that_is_held_back_comes_with_a_later_cycle_for_the_first_jobs_only(
    rank: int, comes: bool
) -> None:
    desk = Desk()
    desk.update(KNOWN)
    desk.update(waits(message="new"), rank=rank)
    assert (desk.changed, desk.decisions.verdicts) == (["team/x"], {"uid-x": KNOWN})
    seconds = desk.seconds_until_next()
    assert (seconds is not None) is comes
    assert seconds is None or 0 < seconds <= 30


async def test_a_verdict_of_changed_limits_is_never_held_back() -> None:
    desk, news = Desk(), waits(message="new")
    desk.update(KNOWN)
    desk.update(news, rank=RENEWED_JOBS, at_once=True)
    assert (desk.changed, desk.decisions.verdicts) == (["team/x", "team/x"], {"uid-x": news})


async def test_a_job_that_waits_no_more_has_no_verdict_and_no_pause() -> None:
    desk = Desk()
    desk.update(KNOWN)
    desk.updates.keep(set())
    assert desk.decisions.verdicts == {}
    desk.updates.update(waits(message="new"), before=KNOWN, rank=0, key="team/x")
    assert desk.changed == ["team/x", "team/x"]


async def test_the_latest_verdict_is_the_one_that_is_held_back_until_it_is_outdated() -> None:
    desk, news = Desk(), waits(message="new")
    desk.update(KNOWN)
    assert desk.updates.latest("uid-x") == KNOWN
    desk.update(news)
    assert desk.updates.latest("uid-x") == news
    desk.updates.keep({"uid-x"})
    assert desk.updates.latest("uid-x") == news
    desk.update(KNOWN)
    assert desk.updates.latest("uid-x") == KNOWN
    for outdated in (lambda: desk.update(LET_GO), lambda: desk.update(waits(message="far"), rank=RENEWED_JOBS)):
        desk.updates.keep(set())
        desk.update(KNOWN)
        desk.update(news)
        outdated()
        assert desk.updates.latest("uid-x") == desk.decisions.verdicts["uid-x"]
    desk.update(KNOWN)
    desk.update(news)
    desk.updates.keep(set())
    assert desk.updates.latest("uid-x") is None


# A place in the queue, for which an estimate may come.
PLACED = waits(basis="x")
ESTIMATED = waits(estimated_start=at(9))


def marked_at(scenario: Callable[[Desk], object], *, rank: int = 0, first: Waits = PLACED) -> tuple[Desk, list[float]]:
    """The desk, and when it marked the job: after its first verdict at 0 s, and what happens half a second later."""
    moments: list[float] = []

    async def play() -> Desk:
        desk, loop = Desk(), asyncio.get_running_loop()
        began = loop.time()
        desk.updates._changed = lambda _: moments.append(round(loop.time() - began, 3))
        desk.update(first, rank=rank)
        await asyncio.sleep(0.5)
        scenario(desk)
        await asyncio.sleep(100)
        return desk

    return run(play()), moments


def nothing(_desk: Desk) -> None:
    """Nothing happens."""


def test_a_first_reason_waits_a_second_for_the_estimate_of_its_start() -> None:
    desk, moments = marked_at(nothing)
    assert (moments, desk.decisions.verdicts) == ([1.0], {"uid-x": PLACED})


def test_a_first_reason_and_its_estimate_are_one_write() -> None:
    desk, moments = marked_at(lambda desk: desk.update(ESTIMATED))
    assert (moments, desk.decisions.verdicts) == ([0.5], {"uid-x": ESTIMATED})


def test_a_first_reason_does_not_wait_on_once_estimates_are_made_without_one_for_it() -> None:
    assert marked_at(lambda desk: desk.updates.estimated({"uid-x"}))[1] == [0.5]
    assert marked_at(lambda desk: desk.updates.estimated({"uid-y"}))[1] == [1.0]


@pytest.mark.parametrize(("seconds", "marked"), [(0.0, 1.0), (1.0, 1.0), (1.1, 0.5)])
def test_a_first_reason_does_not_wait_on_once_the_estimates_pause_for_longer(seconds: float, marked: float) -> None:
    desk, moments = marked_at(lambda desk: desk.updates.pause_estimates(seconds=seconds))
    assert (moments, desk.decisions.verdicts) == ([marked], {"uid-x": PLACED})


@pytest.mark.parametrize(("left", "waits"), [(1.1, 0.0), (1.0, 1.0), (0.0, 1.0)])
def test_a_first_reason_waits_for_estimates_that_come_within_a_second(left: float, waits: float) -> None:
    def anew(desk: Desk) -> None:
        desk.updates.pause_estimates(seconds=left)
        desk.decisions.withdraw_verdict("uid-x")
        desk.update(PLACED)

    assert marked_at(anew, first=KNOWN)[1] == [0.0, 0.5 + waits]


@pytest.mark.parametrize(
    ("first", "rank"),
    [
        pytest.param(KNOWN, 0, id="no place in the queue"),
        pytest.param(ESTIMATED, 0, id="an estimate"),
        pytest.param(PLACED, RENEWED_JOBS, id="far back"),
    ],
)
def test_a_first_reason_for_which_no_estimate_comes_is_not_delayed(first: Waits, rank: int) -> None:
    assert marked_at(nothing, first=first, rank=rank)[1] == [0.0]


def test_the_last_of_the_first_jobs_waits_for_its_estimate() -> None:
    assert marked_at(nothing, rank=RENEWED_JOBS - 1)[1] == [1.0]


def test_another_number_does_not_end_the_wait_and_another_reason_does() -> None:
    assert marked_at(lambda desk: desk.update(waits(message="new", basis="x")))[1] == [1.0]
    desk, moments = marked_at(lambda desk: desk.update(waits("Quota", basis="x")))
    assert (moments, desk.decisions.verdicts) == ([0.5], {"uid-x": waits("Quota", basis="x")})


def test_limits_that_change_end_the_wait() -> None:
    desk, moments = marked_at(lambda desk: desk.update(waits(message="new", basis="x"), at_once=True))
    assert (moments, desk.decisions.verdicts) == ([0.5], {"uid-x": waits(message="new", basis="x")})


def test_a_job_that_may_start_meanwhile_is_marked_as_such_alone() -> None:
    desk, moments = marked_at(lambda desk: desk.update(LET_GO))
    assert (moments, desk.admitted) == ([], ["team/x"])


def test_a_job_that_leaves_the_queue_meanwhile_is_not_marked() -> None:
    assert marked_at(lambda desk: desk.updates.keep(set()))[1] == []
    assert marked_at(lambda desk: desk.updates.keep({"uid-x"}))[1] == [1.0]


def test_a_job_that_waits_anew_waits_for_its_estimate_anew() -> None:
    def withdrawn(desk: Desk) -> None:
        desk.decisions.withdraw_verdict("uid-x")
        desk.update(PLACED)

    assert marked_at(withdrawn)[1] == [1.5]
