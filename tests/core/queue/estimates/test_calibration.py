"""What is learned of missed estimates."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.queue.estimates.calibration import Bounds, Factors, Foreseen, Held, Misses


def foreseen(seconds: float, *, early: float | None = None, late: float | None = None) -> Foreseen:
    return Foreseen(
        seconds=seconds,
        early_seconds=seconds if early is None else early,
        late_seconds=seconds if late is None else late,
    )


def after(*waits: float, seconds: float = 1000) -> Misses:
    misses = Misses()
    for number, waited in enumerate(waits):
        misses.bounds_of(f"{number}", foreseen=foreseen(seconds), now_seconds=0)
        misses.started(f"{number}", now_seconds=waited)
    return misses


def width(bounds: Bounds) -> float:
    return bounds.latest_seconds - bounds.earliest_seconds


def test_estimates_that_come_true_make_the_bounds_narrow_and_misses_make_them_wide() -> None:
    seen = foreseen(2000, early=1500, late=3000)
    narrow, before, wide = (
        width(misses.bounds(seen)) for misses in (after(*[1000] * 50), Misses(), after(*[9000] * 20))
    )
    assert narrow < before < wide


def test_the_bounds_follow_the_futures_that_were_played() -> None:
    sure, unsure = Misses().bounds(foreseen(1000)), Misses().bounds(foreseen(1000, early=300, late=1200))
    assert width(sure) < width(unsure)
    assert 1000 - unsure.earliest_seconds > unsure.latest_seconds - 1000


def test_one_that_is_gone_teaches_nothing() -> None:
    misses = Misses()
    for number in range(20):
        misses.bounds_of(f"{number}", foreseen=foreseen(1000), now_seconds=0)
        misses.forget(f"{number}")
        misses.started(f"{number}", now_seconds=5000)
    assert misses.factors == Misses().factors


def test_a_job_weighs_one_however_often_it_was_told() -> None:
    often = Misses()
    for now in range(0, 990, 40):
        often.bounds_of("it", foreseen=foreseen(1000), now_seconds=now)
    often.started("it", now_seconds=1000)
    assert often.factors.early < after(*[0] * 3).factors.early


def test_the_bounds_reach_further_to_the_side_where_starts_come() -> None:
    late = after(*[3000] * 50).factors
    early = after(*[300] * 50).factors
    assert late.late > Factors().late > early.late
    assert early.early > Factors().early > late.early


def test_one_start_that_came_as_foreseen_changes_little() -> None:
    """Twenty in their stead weigh against one that came: the factors begin at 1.3."""
    assert after(1000).factors.late == pytest.approx(1.2952, abs=0.001)
    assert after(1000).factors.early == pytest.approx(1.2952, abs=0.001)


def test_how_late_a_start_is_counts_in_parts_of_the_span_to_that_side() -> None:
    """Twice as long as foreseen is well within futures that reach to four times as long."""
    misses = Misses()
    for number in range(50):
        misses.bounds_of(f"{number}", foreseen=foreseen(1000, early=1000, late=4000), now_seconds=0)
        misses.started(f"{number}", now_seconds=2000)
    assert misses.factors.late < Factors().late


@pytest.mark.parametrize(
    ("waited", "within"), [(98.9, False), (99.0, True), (150.0, True), (201.0, True), (201.1, False)]
)
def test_a_start_is_within_its_bounds_to_the_second(waited: float, within: bool) -> None:
    assert Bounds(earliest_seconds=100.0, latest_seconds=200.0).hold(waited) is within


def test_estimates_are_noted_apart_and_the_latest_eight_of_them() -> None:
    """Told every second: noted at half of what was foreseen, and not before 30 s have passed."""
    misses = Misses()
    for now in range(200):
        misses.bounds_of("short", foreseen=foreseen(10), now_seconds=now)
        misses.bounds_of("long", foreseen=foreseen(100), now_seconds=now)
    noted = {key: [each.at_seconds for each in found] for key, found in misses._noted.items()}
    assert noted == {"short": [0, 30, 60, 90, 120, 150, 180], "long": [0, 50, 100, 150]}
    for now in range(200, 1000):
        misses.bounds_of("short", foreseen=foreseen(10), now_seconds=now)
    assert [each.at_seconds for each in misses._noted["short"]] == list(range(780, 1000, 30))


def test_what_came_long_ago_is_forgotten() -> None:
    assert after(*[9000] * 50, *[1000] * 1000).factors == after(*[1000] * 1000).factors


def test_what_was_learned_can_be_taken_up_again() -> None:
    before, later = after(*[3000] * 9), Misses()
    later.restore(before.factors, held=before.held)
    assert later.bounds(foreseen(500)) == before.bounds(foreseen(500))


@pytest.mark.parametrize("factor", [0.0, -1.0, 100.0, float("nan"), float("inf")])
def test_what_cannot_have_been_learned_is_refused(factor: float) -> None:
    for side in ("early", "late"):
        with pytest.raises(ValueError, match=r"from 0\.1 to 8\.0"):
            Factors(**{side: factor})


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=30),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_an_estimate_lies_within_its_own_bounds(
    past: list[tuple[float, float]], seconds: float, early: float, late: float
) -> None:
    misses = Misses()
    for number, (told, waited) in enumerate(past):
        misses.bounds_of(f"{number}", foreseen=foreseen(told), now_seconds=0)
        misses.started(f"{number}", now_seconds=waited)
    bounds = misses.bounds(foreseen(seconds, early=early, late=late))
    assert 0 <= bounds.earliest_seconds <= seconds <= bounds.latest_seconds


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.5))
def test_nine_in_ten_starts_lie_within_their_bounds_however_estimates_are_off(seed: int, spread: float) -> None:
    rng, misses, within = random.Random(seed), Misses(), 0
    for number in range(600):
        seconds = rng.uniform(700, 3500)
        seen = foreseen(seconds, early=seconds * 0.7, late=seconds * 1.4)
        waited = seen.seconds * rng.lognormvariate(-0.1, spread)
        bounds = misses.bounds_of("it", foreseen=seen, now_seconds=0)
        within += number >= 100 and bounds.hold(waited)
        misses.started("it", now_seconds=waited)
    assert within / 500 >= 0.84


def test_the_level_is_the_part_of_starts_within_the_bounds_that_were_shown() -> None:
    """The bounds of the first estimate reach from 580 to 1,500 s."""
    misses = Misses()
    for number in range(20):
        bounds = misses.bounds_of(f"{number}", foreseen=foreseen(1000), now_seconds=0)
        misses.started(f"{number}", now_seconds=bounds.latest_seconds + (10 if number < 5 else -10))
    assert misses.held == Held(jobs=20, within=15)
    assert misses.held.level == 0.75


def test_a_level_of_few_starts_is_not_stated() -> None:
    assert after(*[1000] * 19).held.level is None
    assert after(*[1000] * 20).held.level == 1.0


def test_of_several_estimates_of_a_job_the_part_counts_whose_bounds_held() -> None:
    misses = Misses()
    misses.bounds_of("it", foreseen=foreseen(1000), now_seconds=0)
    misses.bounds_of("it", foreseen=foreseen(100), now_seconds=600)
    misses.started("it", now_seconds=1000)
    assert misses.held == Held(jobs=1, within=0.5)


def test_the_starts_of_an_earlier_operator_count_as_two_hundred_at_most() -> None:
    misses = Misses()
    misses.restore(Factors(), held=Held(jobs=1000, within=800))
    assert misses.held == Held(jobs=200, within=160)
    for number in range(200):
        misses.bounds_of(f"{number}", foreseen=foreseen(1000), now_seconds=0)
        misses.started(f"{number}", now_seconds=1000)
    assert misses.held == Held(jobs=400, within=360)


@pytest.mark.parametrize(("jobs", "within"), [(1, 2.0), (1, -1.0), (-1, 0.0), (3, float("nan")), (3, float("inf"))])
def test_no_more_jobs_are_within_their_bounds_than_there_are(jobs: int, within: float) -> None:
    with pytest.raises(ValueError, match="started within their bounds"):
        Held(jobs=jobs, within=within)


@given(st.lists(st.floats(0, 1e6), max_size=40), st.integers(0, 3000))
def test_the_level_is_always_a_part(waits: list[float], restored: int) -> None:
    misses = after(*waits)
    misses.restore(Factors(), held=Held(jobs=restored, within=restored / 3))
    level = misses.held.level
    assert level is None or 0 <= level <= 1


def test_starts_that_are_all_later_than_foreseen_move_the_next_estimate() -> None:
    misses, seen = after(*[2000] * 30), foreseen(1000, early=500, late=4000)
    assert Misses().expected_seconds(seen) == pytest.approx(1000)
    assert misses.expected_seconds(seen) == pytest.approx(2000)
    assert after(*[500] * 30).expected_seconds(seen) == pytest.approx(500)


def test_a_few_misses_move_no_estimate() -> None:
    assert after(9000, 9000, 9000, 9000).factors.shift == 0


def test_a_shift_goes_on_after_a_restart_until_enough_jobs_have_started() -> None:
    misses = Misses()
    misses.restore(Factors(shift=0.5), held=Held())
    misses.bounds_of("it", foreseen=foreseen(1000), now_seconds=0)
    misses.started("it", now_seconds=1000)
    assert misses.factors.shift == 0.5


@given(st.lists(st.floats(0, 1e6), max_size=40), st.lists(st.floats(0, 1e6), min_size=3, max_size=3))
@settings(deadline=None)
def test_an_estimate_is_within_its_bounds(waits: list[float], futures: list[float]) -> None:
    early, seconds, late = sorted(futures)
    misses, seen = after(*waits), foreseen(seconds, early=early, late=late)
    bounds = misses.bounds(seen)
    assert bounds.earliest_seconds <= misses.expected_seconds(seen) <= bounds.latest_seconds


@pytest.mark.parametrize("shift", [2.1, -2.1, float("nan"), float("inf")])
def test_a_shift_out_of_range_is_refused(shift: float) -> None:
    with pytest.raises(ValueError, match=r"a shift is a number from -2\.0 to 2\.0, not"):
        Factors(shift=shift)
