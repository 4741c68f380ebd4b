"""Dual values of the cutting stock: cases that can be solved by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.fragmentation.cutting_stock import best_sets, dual_values, residual_values, share_demand
from tests.core.fragmentation.builders import host, mix_of, share, whole


def test_a_size_that_goes_three_times_into_a_device_is_worth_a_third():
    assert dual_values({30: 7.0}) == {30: pytest.approx(1 / 3)}


def test_two_sizes_that_fill_a_device_together_share_its_worth():
    # As many of 60 as of 40: every device takes one of each, and 40 could also go two to a device.
    duals = dual_values({60: 1.0, 40: 1.0})
    assert duals[60] + duals[40] == pytest.approx(1)
    assert duals[40] <= 0.5 + 1e-9


def test_the_scarcer_partner_gives_way():
    # More of 60 than of 40: the last 60 has a device for itself, so a 60 is worth it all and a 40 beside it nothing.
    assert dual_values({60: 3.0, 40: 1.0}) == {60: pytest.approx(1), 40: pytest.approx(0)}
    # More of 40 than of 60: the last two 40 share a device.
    assert dual_values({60: 1.0, 40: 3.0}) == {60: pytest.approx(0.5), 40: pytest.approx(0.5)}


def test_a_size_nobody_asks_for_has_no_worth():
    assert dual_values({50: 1.0, 20: 0.0}) == {50: pytest.approx(0.5)}
    assert dual_values({}) == {}


def test_the_best_set_of_pieces_is_cut_from_each_room():
    value = best_sets({30: 0.3, 50: 0.6})
    assert [value[room] for room in (29, 30, 49, 50, 80, 100)] == pytest.approx([0, 0.3, 0.3, 0.6, 0.9, 1.2])


def test_a_residual_is_worth_what_can_still_be_cut_from_it():
    value = residual_values({500: 1.0})
    assert [value[milli] for milli in (0, 499, 500, 999, 1000)] == pytest.approx([0, 0, 0.5, 0.5, 1])


def test_sizes_between_hundredths_take_the_whole_hundredth():
    value = residual_values({333: 1.0})
    assert value[339] == 0
    assert value[340] == pytest.approx(0.5)


def test_only_shares_are_cut_from_devices():
    expected = mix_of((share(300), 2), (share(300, cpu_milli=9), 1), (whole(1), 4), (host(1), 1))
    assert share_demand(expected) == {300: pytest.approx(3 / 8)}


@given(st.dictionaries(st.integers(1, 999), st.floats(1e-6, 1.0), min_size=1, max_size=8))
def test_worth_rises_with_the_residual_and_no_pattern_is_worth_more_than_a_device(demand):
    value = residual_values(demand)
    assert value[0] == 0
    assert (value[1:] >= value[:-1] - 1e-9).all()
    assert value[1000] == pytest.approx(1, abs=1e-6)


def test_only_how_much_is_asked_of_each_size_counts_and_not_how_many_sizes_there_are():
    """Beside each 600 there is room for two 200. Three of these for one 600: the third has a device of its own."""
    value = residual_values({600: 0.1, 200: 0.3})
    assert [value[milli] for milli in (200, 600)] == pytest.approx([0.2, 0.6])
    parted = residual_values({600: 0.1, 191: 0.1, 195: 0.1, 200: 0.1})
    assert [parted[milli] for milli in (200, 600)] == pytest.approx([0.2, 0.6])
