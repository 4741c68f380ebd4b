"""What is learned of run times and of missed estimates."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.queue.expecting import Misses, RunTimesUsed


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


def test_before_anything_is_learned_the_bounds_are_wide() -> None:
    found = Misses().bounds(1000)
    assert found.earliest_seconds == 0
    assert found.latest_seconds == pytest.approx(1250.25)


def test_what_is_learned_of_short_waits_says_nothing_of_long_ones() -> None:
    misses = Misses()
    for _ in range(20):
        misses.started(foreseen_seconds=100, waited_seconds=100)
    assert misses.bounds(100).latest_seconds == pytest.approx(100)
    assert misses.bounds(100_000).latest_seconds == pytest.approx(125_000.25)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 3.0))
def test_nine_in_ten_starts_lie_within_their_bounds_however_estimates_are_off(seed: int, spread: float) -> None:
    rng, misses, within = random.Random(seed), Misses(), 0
    for number in range(600):
        foreseen = rng.uniform(700, 3500)
        waited = foreseen * rng.lognormvariate(-0.5, spread)
        bounds = misses.bounds(foreseen)
        within += number >= 100 and bounds.earliest_seconds <= waited <= bounds.latest_seconds
        misses.started(foreseen_seconds=foreseen, waited_seconds=waited)
    assert within / 500 >= 0.82
