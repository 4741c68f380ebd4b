"""What is learned of run times and of missed estimates."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.queue.expecting import Foreseen, Misses, RunTimesUsed


def learned(*used: float, group: str = "team") -> RunTimesUsed:
    found = RunTimesUsed()
    for part in used:
        found.ended(group, ran_seconds=1000 * part, limit_seconds=1000)
    return found


def test_a_job_is_expected_to_use_as_much_of_its_limit_as_most_like_it() -> None:
    found = learned(*[0.1] * 3, *[0.3] * 5, *[0.9] * 2)
    assert found.expected_seconds("team", limit_seconds=100) == pytest.approx(30)


def test_one_that_runs_on_is_compared_with_those_that_ran_as_long() -> None:
    found = learned(*[0.1] * 8, *[0.8] * 2)
    assert found.expected_seconds("team", limit_seconds=100, so_far_seconds=50) == pytest.approx(80)


def test_one_that_ran_longer_than_all_others_is_expected_to_go_on_for_a_while() -> None:
    found = learned(*[0.1] * 10)
    assert found.expected_seconds("team", limit_seconds=100, so_far_seconds=60) == pytest.approx(80)


def test_a_group_of_which_little_is_known_is_taken_for_like_the_others() -> None:
    found = learned(*[0.4] * 10)
    found.ended("new", ran_seconds=1000, limit_seconds=1000)
    assert found.expected_seconds("new", limit_seconds=100) == pytest.approx(40)
    assert found.knows("never seen")
    assert not RunTimesUsed().knows("team")


def test_only_the_latest_count() -> None:
    found = learned(*[0.1] * 500, *[0.7] * 200)
    assert found.expected_seconds("team", limit_seconds=100) == pytest.approx(70)


def test_those_that_end_early_and_late_are_told_once_enough_is_known() -> None:
    found = learned(*[0.1] * 3, *[0.3] * 5, *[0.9] * 3)
    early, late = found.range_seconds("team", limit_seconds=100) or (0, 0)
    assert (early, late) == pytest.approx((10, 90))
    assert RunTimesUsed().range_seconds("team", limit_seconds=100) is None


def foreseen(seconds: float, *, early: float | None = None, late: float | None = None, gpus: float = 1.0) -> Foreseen:
    return Foreseen(
        seconds=seconds,
        early_seconds=seconds if early is None else early,
        late_seconds=seconds if late is None else late,
        gpus=gpus,
    )


def missed(misses: Misses, by: float, *, seconds: float, gpus: float = 1.0, times: int = 100) -> Misses:
    for number in range(times):
        misses.told(f"{number}", foreseen(seconds, gpus=gpus), now_seconds=0)
        misses.started(f"{number}", now_seconds=by * (seconds + 60) - 60)
    return misses


def test_before_anything_is_learned_the_bounds_are_wide() -> None:
    bounds = Misses().bounds(foreseen(1000))
    assert bounds.earliest_seconds == 0
    assert bounds.latest_seconds == pytest.approx(1265)


def test_the_bounds_reach_at_least_from_an_early_start_to_a_late_one() -> None:
    misses = missed(Misses(), 1, seconds=1000)
    bounds = misses.bounds(foreseen(1000, early=700, late=1600))
    assert (bounds.earliest_seconds, bounds.latest_seconds) == pytest.approx((700, 1600))


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
    assert misses.bounds(foreseen(1000)).latest_seconds == pytest.approx(1265)


def test_several_estimates_of_one_wait_are_learned_from() -> None:
    misses = Misses()
    for now in range(0, 1000, 10):
        misses.told("it", foreseen(1000 - now), now_seconds=now)
    misses.started("it", now_seconds=1000)
    for seconds in (1000, 500, 250):
        bounds = misses.bounds(foreseen(seconds))
        assert (bounds.earliest_seconds, bounds.latest_seconds) == pytest.approx((0, 1.25 * (seconds + 60) - 60))
    for number in range(3):
        misses.told(f"{number}", foreseen(1000), now_seconds=0)
        misses.started(f"{number}", now_seconds=1000)
    assert misses.bounds(foreseen(500)).earliest_seconds == pytest.approx(500)


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
    assert 0 <= bounds.earliest_seconds <= min(seconds, early)
    assert max(seconds, late) <= bounds.latest_seconds


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 3.0))
def test_nine_in_ten_starts_lie_within_their_bounds_however_estimates_are_off(seed: int, spread: float) -> None:
    rng, misses, within = random.Random(seed), Misses(), 0
    for number in range(600):
        seen = foreseen(rng.uniform(700, 3500))
        waited = seen.seconds * rng.lognormvariate(-0.5, spread)
        bounds = misses.bounds(seen)
        within += number >= 100 and bounds.earliest_seconds <= waited <= bounds.latest_seconds
        misses.told("it", seen, now_seconds=0)
        misses.started("it", now_seconds=waited)
    assert within / 500 >= 0.82
