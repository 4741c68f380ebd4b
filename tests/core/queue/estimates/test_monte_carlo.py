"""How sure a start is that is foreseen."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.estimates.monte_carlo import foresee_with_range, no_arrivals
from dovetail.queue.estimates.simulation import Start
from dovetail.queue.model.candidates import Candidate, Leaving
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, LARGE, make_job, run


def foreseen(*waiting: Candidate, ledger: Ledger, leaving: list[Leaving], **more: object) -> dict[str, Start]:
    seen = foresee_with_range(waiting, ledger=ledger, sites={}, leaving=leaving, **more)  # type: ignore[arg-type]  # coming
    return {start.key.removeprefix("uid-"): start for start in seen if start is not None}


def may_end(leaving: list[Leaving], *hours: float) -> list[Leaving]:
    reach = tuple(hour * HOUR for hour in hours)
    return [
        msgspec.structs.replace(each, likely_seconds=reach[len(reach) // 2], likely_range=reach) for each in leaving
    ]


def test_a_range_reaches_from_early_ends_to_late_ones() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2, 3)
    start = foreseen(make_job("first", "4"), ledger=ledger, leaving=leaving)["first"]
    early, late = start.range_seconds or (0, 0)
    assert HOUR <= early < start.in_seconds < late <= 3 * HOUR


def test_a_later_start_is_less_sure() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2, 3)
    first = replace(make_job("first", "4", hours=4), likely_seconds=2 * HOUR, likely_range=(HOUR, 2 * HOUR, 4 * HOUR))
    found = foreseen(first, make_job("then", "4", at=1), ledger=ledger, leaving=leaving)
    (early, late), (earlier, later) = (found[name].range_seconds or (0, 0) for name in ("first", "then"))
    assert late - early < later - earlier
    assert early < earlier


def test_where_nothing_is_known_of_run_times_there_is_no_range() -> None:
    ledger = make_ledger(a=4)
    start = foreseen(LARGE, ledger=ledger, leaving=run(ledger, make_job("r", "4", hours=3)))["large"]
    assert (start.gpus, start.in_seconds, start.range_seconds) == (LARGE.gpus, 3 * HOUR, None)


def test_the_same_queue_is_foreseen_alike_whenever_it_is() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2, 3)
    assert foreseen(LARGE, ledger=ledger, leaving=leaving) == foreseen(LARGE, ledger=ledger, leaving=leaving)


def test_the_ledger_is_as_before() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2)
    foreseen(LARGE, ledger=ledger, leaving=leaving)
    assert [claim.key for claim in ledger.claims_on("a")] == [leaving[0].key]


def test_jobs_of_higher_priority_that_are_yet_to_come_go_before() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=2)), 2)

    def coming(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        assert above == 10
        job = make_job(f"comes{play}", "4", hours=3, priority=50)
        return [(HOUR, job)] if play % 5 else []

    alone = foreseen(make_job("it", "4"), ledger=ledger, leaving=leaving, coming=no_arrivals)["it"]
    start = foreseen(make_job("it", "4"), ledger=ledger, leaving=leaving, coming=coming)["it"]
    assert alone.range_seconds == (2 * HOUR, 2 * HOUR)
    assert start.in_seconds == 5 * HOUR
    assert start.range_seconds == pytest.approx((2 * HOUR, 5 * HOUR))


def test_all_that_came_until_an_end_go_before_when_it_comes() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=2)), 2)

    def coming(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        return [(HOUR, make_job(name, "2", hours=3, priority=50)) for name in ("one", "another")]

    start = foreseen(make_job("it", "2"), ledger=ledger, leaving=leaving, coming=coming)["it"]
    assert start.in_seconds == 5 * HOUR


def test_one_that_others_pass_until_the_play_is_over_starts_then_at_the_earliest() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=2)), 2)

    def coming(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        return ((number * HOUR, make_job(f"c{number}", "4", hours=1, priority=50)) for number in range(10_000))

    start = foreseen(make_job("it", "4"), ledger=ledger, leaving=leaving, coming=coming)["it"]
    assert start.in_seconds > 100 * HOUR


def test_fifteen_futures_are_played_each_with_a_draw_of_its_own() -> None:
    asked: list[tuple[int, int]] = []

    def coming(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        asked.append((play, above))
        return ()

    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2, 3)
    waiting = [make_job("first", "4", priority=30), make_job("then", "4", at=1, priority=20)]
    foreseen(*waiting, ledger=ledger, leaving=leaving, coming=coming)
    assert asked == [(number, 20) for number in range(15)]


@pytest.mark.parametrize(
    ("ends", "start_hours"),
    [
        # Fifteen plays, and the likeliest future four times: 6 h where hardly any play ends then.
        pytest.param((6.0,) * 10, 6.0, id="all plays agree"),
        pytest.param((1.0,) * 9 + (6.0,), 1.0, id="most plays are another time"),
        pytest.param((1.0, 6.0, 12.0, 20.0, 29.0), 6.0, id="no two plays agree"),
    ],
)
def test_an_estimate_is_where_most_futures_are_within_an_hour(ends: tuple[float, ...], start_hours: float) -> None:
    ledger = make_ledger(a=4)
    (leaving,) = may_end(run(ledger, make_job("r", "4", hours=30)), *ends)
    leaving = msgspec.structs.replace(leaving, likely_seconds=6 * HOUR)
    start = foreseen(make_job("it", "4"), ledger=ledger, leaving=[leaving])["it"]
    assert start.in_seconds / HOUR == pytest.approx(start_hours, abs=0.1)


def test_where_no_job_waits_no_future_is_played() -> None:
    def coming(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        raise AssertionError((play, above))

    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "2", hours=4)), 1, 2, 3)
    assert foreseen(make_job("now", "1"), ledger=ledger, leaving=leaving, coming=coming) == {}


def test_only_one_job_gets_the_estimate_that_it_has_among_all() -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2, 3)
    jobs = (make_job("first", "4", hours=1), make_job("then", "4", at=1))
    everyone = foreseen(*jobs, ledger=ledger, leaving=leaving)
    assert foreseen(*jobs, ledger=ledger, leaving=leaving, only="uid-then") == {"then": everyone["then"]}
    assert foreseen(*jobs, ledger=ledger, leaving=leaving, only="uid-other") == {}


@pytest.mark.parametrize(("most_cycles", "start_hours"), [(0, None), (1, 2.0)])
def test_a_limit_on_cycles_plays_the_likeliest_future_alone_or_gives_up(
    most_cycles: int, start_hours: float | None
) -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=4)), 1, 2, 3)
    found = foreseen(LARGE, ledger=ledger, leaving=leaving, only=LARGE.key, most_cycles=most_cycles)
    starts = [(start.in_seconds / HOUR, start.range_seconds) for start in found.values()]
    assert starts == ([] if start_hours is None else [(start_hours, None)])


def test_all_claims_of_a_job_end_together_in_every_future() -> None:
    ledger = make_ledger(a=4, b=4)
    leaving = may_end(run(ledger, replace(make_job("r", "4", hours=9), workers=2)), 1, 5, 9)
    assert len({each.job for each in leaving}) == 1
    sites = {"one": ["a"], "other": ["b"]}
    waiting = [replace(make_job(site, "4"), site=site) for site in sites]
    seen = foresee_with_range(waiting, ledger=ledger, sites=sites, leaving=leaving)
    one, other = [start for start in seen if start is not None]
    assert (one.in_seconds, one.range_seconds) == (other.in_seconds, other.range_seconds)


@pytest.mark.parametrize(("longest", "latest"), [(1, 3), (9, 11)])
def test_a_job_that_is_yet_to_come_runs_as_long_as_one_like_it_may(longest: int, latest: int) -> None:
    ledger = make_ledger(a=4)
    leaving = may_end(run(ledger, make_job("r", "4", hours=2)), 2)

    def coming(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        job = make_job(f"comes{play}", "4", hours=9, priority=50)
        return [(HOUR, replace(job, likely_seconds=HOUR, likely_range=(HOUR, longest * HOUR)))]

    early, late = foreseen(make_job("it", "4"), ledger=ledger, leaving=leaving, coming=coming)["it"].range_seconds or (
        0,
        0,
    )
    assert 3 * HOUR <= early <= late <= latest * HOUR
    assert (early < late) == (longest > 1)
