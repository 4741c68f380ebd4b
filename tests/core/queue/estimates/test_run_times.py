"""What is learned of run times."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dovetail.queue.estimates import expectations
from dovetail.queue.estimates.expectations import PARTS, RunTimesUsed


def learned(*used: float, group: str = "team") -> RunTimesUsed:
    found = RunTimesUsed()
    for part in used:
        found.ended((group,), ran_seconds=1000 * part, limit_seconds=1000)
    return found


def test_a_job_is_expected_to_use_as_much_of_its_limit_as_most_like_it() -> None:
    found = learned(*[0.1] * 3, *[0.3] * 5, *[0.9] * 2)
    assert found.expected_seconds(("team",), limit_seconds=100) == pytest.approx(30)


def test_one_that_runs_on_is_compared_with_those_that_ran_as_long() -> None:
    found = learned(*[0.1] * 8, *[0.8] * 2)
    assert found.expected_seconds(("team",), limit_seconds=100, so_far_seconds=50) == pytest.approx(80)


def test_one_that_ran_longer_than_all_others_is_expected_to_go_on_for_a_while() -> None:
    found = learned(*[0.1] * 10)
    assert found.expected_seconds(("team",), limit_seconds=100, so_far_seconds=60) == pytest.approx(80)


def test_a_group_of_which_little_is_known_is_taken_for_like_the_others() -> None:
    found = learned(*[0.4] * 10)
    found.ended(("new",), ran_seconds=1000, limit_seconds=1000)
    assert found.expected_seconds(("new",), limit_seconds=100) == pytest.approx(40)
    assert found.is_enough
    assert not RunTimesUsed().is_enough


def test_only_the_latest_count() -> None:
    found = learned(*[0.1] * 500, *[0.7] * 200)
    assert found.expected_seconds(("team",), limit_seconds=100) == pytest.approx(70)


def test_the_closest_group_of_which_enough_is_known_tells() -> None:
    found = learned(*[0.2] * 5, group="same work")
    for part in [0.6] * 20:
        found.ended(("team",), ran_seconds=1000 * part, limit_seconds=1000)
    assert found.expected_seconds(("same work", "team"), limit_seconds=100) == pytest.approx(20)
    assert found.expected_seconds(("other work", "team"), limit_seconds=100) == pytest.approx(60)


def test_one_that_ran_longer_than_those_of_its_group_is_compared_with_the_next_group_too() -> None:
    found = learned(*[0.2] * 5, 0.5, group="same work")
    for part in [0.3] * 20 + [0.6] * 5:
        found.ended(("team",), ran_seconds=1000 * part, limit_seconds=1000)
    groups = ("same work", "team")
    assert found.expected_seconds(groups, limit_seconds=100, so_far_seconds=10) == pytest.approx(20)
    told = found.range_seconds(groups, limit_seconds=100, so_far_seconds=40) or ()
    assert (told[0], told[-1]) == pytest.approx((50, 60))


def test_groups_of_which_nothing_was_heard_for_long_are_forgotten() -> None:
    found = learned(*[0.2] * 5, group="old")
    for number in range(2_000):
        found.ended((f"{number}",), ran_seconds=900, limit_seconds=1000)
    assert found.expected_seconds(("old",), limit_seconds=100) == pytest.approx(90)


def test_how_long_jobs_run_is_told_from_the_shortest_to_the_longest_once_enough_is_known() -> None:
    found = learned(*[0.1] * 3, *[0.3] * 5, *[0.9] * 3)
    told = found.range_seconds(("team",), limit_seconds=100) or ()
    assert (len(told), told[0], told[-1]) == pytest.approx((len(PARTS), 10, 90))
    assert list(told) == sorted(told)
    assert RunTimesUsed().range_seconds(("team",), limit_seconds=100) is None


def test_a_range_is_renewed_once_more_is_known() -> None:
    found = learned(*[0.1] * 10)
    before = found.range_seconds(("team",), limit_seconds=100)
    for _ in range(200):
        found.ended(("team",), ran_seconds=800, limit_seconds=1000)
    after = found.range_seconds(("team",), limit_seconds=100)
    assert before == pytest.approx((10,) * len(PARTS))
    assert after == pytest.approx((80,) * len(PARTS))


def test_one_that_ran_longer_than_all_others_may_end_at_any_time_until_its_limit() -> None:
    told = learned(*[0.1] * 10).range_seconds(("team",), limit_seconds=100, so_far_seconds=60) or ()
    assert 60 < told[0] < told[-1] <= 100


def test_of_ten_that_ran_differently_each_tells_a_part_of_the_range() -> None:
    found = learned(*[at / 10 for at in range(1, 11)])
    told = found.range_seconds(("team",), limit_seconds=100) or ()
    assert told == pytest.approx((10, 20, 30, 40, 50, 60, 70, 80, 90, 100))
    later = found.range_seconds(("team",), limit_seconds=100, so_far_seconds=75) or ()
    assert (later[0], later[-1]) == pytest.approx((80, 100))
    assert found.range_seconds(("team",), limit_seconds=100) == told, "what one that runs on is told is its own"


def test_what_runs_beyond_its_limit_has_used_all_of_it() -> None:
    found = learned(*[3.0] * 5)
    assert found.expected_seconds(("team",), limit_seconds=100) == pytest.approx(100)
    assert found.expected_seconds(("team",), limit_seconds=100, so_far_seconds=300) == pytest.approx(100)


@pytest.mark.parametrize(("count", "knows"), [(4, False), (5, True)])
def test_five_are_enough_to_tell(count: int, knows: bool) -> None:
    found = learned(*[0.3] * count)
    assert found.is_enough == knows
    assert found.expected_seconds(("team",), limit_seconds=100) == pytest.approx(30 if knows else 50)


def test_a_job_that_ends_at_once_is_expected_to_run_a_little() -> None:
    assert learned(*[0.0] * 5).expected_seconds(("team",), limit_seconds=100) == pytest.approx(2)


_GROUPS = st.sampled_from([("same", "team"), ("team",), ("other", "team")])
_ENDS = st.tuples(st.just("ends"), _GROUPS, st.sampled_from([10.0, 500.0, 900.0]), st.sampled_from([100, 1000]))
_ASKS = st.tuples(st.just("asks"), _GROUPS, st.sampled_from([0.0, 0.0, 50.0]), st.sampled_from([100, 1000]))


@given(st.lists(st.one_of(_ENDS, _ASKS), max_size=30))
def test_one_that_was_asked_before_says_what_a_new_one_says(
    steps: list[tuple[str, tuple[str, ...], float, int]],
) -> None:
    def ended_until(count: int) -> RunTimesUsed:
        fresh = RunTimesUsed()
        for what, groups, seconds, limit in steps[:count]:
            if what == "ends":
                fresh.ended(groups, ran_seconds=seconds, limit_seconds=limit)
        return fresh

    used = learned(*[0.2] * 4)
    for at, (what, groups, seconds, limit) in enumerate(steps):
        if what == "ends":
            used.ended(groups, ran_seconds=seconds, limit_seconds=limit)
            continue
        fresh = ended_until(at)
        for _ in range(4):
            fresh.ended(("team",), ran_seconds=200, limit_seconds=1000)
        have, want = (
            (each.is_enough, each.range_seconds(groups, limit_seconds=limit, so_far_seconds=seconds))
            for each in (used, fresh)
        )
        assert have == want


def test_a_group_of_which_something_is_heard_again_is_remembered_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "_GROUPS", 2)
    found = RunTimesUsed()
    for group, used in (("first", 0.1), ("second", 0.5), ("first", 0.1), ("third", 0.9)):
        for _ in range(5):
            found.ended((group,), ran_seconds=1000 * used, limit_seconds=1000)
    assert found.expected_seconds(("first", "second"), limit_seconds=1000) == 100
    assert found.expected_seconds(("second", "third"), limit_seconds=1000) == 900
