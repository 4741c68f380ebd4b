"""What is learned of missed estimates."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.queue.misses import Bounds, Foreseen, Misses


def foreseen(seconds: float, *, early: float | None = None, late: float | None = None, gpus: float = 1.0) -> Foreseen:
    return Foreseen(
        seconds=seconds,
        early_seconds=seconds if early is None else early,
        late_seconds=seconds if late is None else late,
        gpus=gpus,
    )


def missed(misses: Misses, by: float, *, seconds: float, gpus: float = 1.0, times: int = 130) -> Misses:
    for number in range(times):
        misses.told(f"{number}", foreseen(seconds, gpus=gpus), now_seconds=0)
        misses.started(f"{number}", now_seconds=by * (seconds + 60) - 60)
    return misses


def width(bounds: Bounds) -> float:
    return bounds.latest_seconds - bounds.earliest_seconds


def test_before_anything_is_learned_the_bounds_are_wide() -> None:
    bounds = Misses().bounds(foreseen(1000))
    assert bounds.earliest_seconds < 700
    assert bounds.latest_seconds > 1500


def test_estimates_that_come_true_make_the_bounds_narrow() -> None:
    bounds = missed(Misses(), 1, seconds=1000).bounds(foreseen(2000))
    assert (bounds.earliest_seconds, bounds.latest_seconds) == pytest.approx((2000, 2000))


def test_the_bounds_are_on_the_side_to_which_estimates_are_off() -> None:
    bounds = missed(Misses(), 2, seconds=1000).bounds(foreseen(1000))
    assert (bounds.earliest_seconds, bounds.latest_seconds) == pytest.approx((1000, 2060))


def test_where_plays_differ_more_the_bounds_are_wider() -> None:
    misses = Misses()
    for number in range(40):
        misses.told(f"{number}", foreseen(1000, early=600, late=1500), now_seconds=0)
        misses.started(f"{number}", now_seconds=600 + 900 * number / 40)
    sure, unsure = misses.bounds(foreseen(1000)), misses.bounds(foreseen(1000, early=300, late=3000))
    assert width(sure) < width(misses.bounds(foreseen(1000, early=600, late=1500))) < width(unsure)


def test_what_is_learned_of_short_waits_says_nothing_of_long_ones() -> None:
    misses = missed(missed(Misses(), 1, seconds=100), 2, seconds=100_000)
    assert misses.bounds(foreseen(100)).latest_seconds == pytest.approx(100)
    assert misses.bounds(foreseen(100_000)).latest_seconds == pytest.approx(2 * 100_060 - 60)


def test_what_is_learned_of_small_jobs_says_nothing_of_large_ones() -> None:
    misses = missed(missed(Misses(), 1, seconds=1000), 2, seconds=1000, gpus=32)
    assert misses.bounds(foreseen(1000)).latest_seconds == pytest.approx(1000)
    assert misses.bounds(foreseen(1000, gpus=32)).latest_seconds == pytest.approx(2060)


def test_one_that_is_gone_teaches_nothing() -> None:
    misses = Misses()
    for number in range(20):
        misses.told(f"{number}", foreseen(1000), now_seconds=0)
        misses.forget(f"{number}")
        misses.started(f"{number}", now_seconds=5000)
    assert misses.bounds(foreseen(1000)) == Misses().bounds(foreseen(1000))


def test_several_estimates_of_one_wait_are_learned_from_but_not_each() -> None:
    misses = Misses()
    for now in range(0, 1000, 10):
        misses.told("it", foreseen(1000 - now), now_seconds=now)
    misses.started("it", now_seconds=1000)
    assert 4 <= len(misses.lasting) <= 8


def test_bounds_that_held_too_seldom_get_wider_and_those_that_held_always_narrower() -> None:
    rng, often, seldom = random.Random(1), Misses(), Misses()
    for number in range(300):
        spread = rng.lognormvariate(0, 0.5)
        for misses, by in ((often, spread), (seldom, spread * (1 + number / 40))):
            misses.told("it", foreseen(1000), now_seconds=0)
            misses.started("it", now_seconds=1000 * by)
    assert seldom.part > often.part


def test_what_was_learned_can_be_kept_and_taken_up_again() -> None:
    before = missed(missed(Misses(), 2, seconds=1000), 0.7, seconds=500, gpus=8, times=30)
    after = Misses()
    after.restore(before.lasting)
    assert after.lasting == before.lasting
    assert after.bounds(foreseen(500, gpus=8)).earliest_seconds == pytest.approx(
        before.bounds(foreseen(500, gpus=8)).earliest_seconds, rel=0.01
    )


@pytest.mark.parametrize("row", [[1, 2, 3, 4], [1, 2, 3, 4, float("nan")], [-1, 2, 3, 4, 5]])
def test_what_cannot_have_been_learned_is_refused_and_nothing_of_it_kept(row: list[float]) -> None:
    misses = Misses()
    with pytest.raises(ValueError, match="five finite numbers"):
        misses.restore([[1.0, 1.0, 1.0, 1.0, 0.1], row])
    assert misses.lasting == []


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
        misses.told(f"{number}", foreseen(told), now_seconds=0)
        misses.started(f"{number}", now_seconds=waited)
    bounds = misses.bounds(foreseen(seconds, early=early, late=late))
    assert 0 <= bounds.earliest_seconds <= seconds <= bounds.latest_seconds


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 3.0))
def test_nine_in_ten_starts_lie_within_their_bounds_however_estimates_are_off(seed: int, spread: float) -> None:
    rng, misses, within = random.Random(seed), Misses(), 0
    for number in range(600):
        seen = foreseen(rng.uniform(700, 3500))
        waited = seen.seconds * rng.lognormvariate(-0.5, spread)
        bounds = misses.told("it", seen, now_seconds=0)
        within += number >= 100 and bounds.earliest_seconds <= waited <= bounds.latest_seconds
        misses.started("it", now_seconds=waited)
    assert within / 500 >= 0.84
