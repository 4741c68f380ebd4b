"""Prices: the Poisson tail against exact sums, and both terms by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.fragmentation.prices import Prices, PriceSettings, reach
from tests.core.fragmentation.builders import cluster, host, mix_of, put, whole


def exact(mean: float, count: int) -> float:
    below = sum(math.exp(at * math.log(mean) - mean - math.lgamma(at + 1)) for at in range(count))
    return 1 - below


def test_one_or_more_of_a_rare_kind():
    assert reach(np.array([0.5]), count=np.array([1.0])).tolist() == pytest.approx([1 - math.exp(-0.5)])


@given(st.floats(0.01, 500), st.integers(1, 600))
def test_the_tail_is_the_exact_sum_within_a_thousandth(mean, count):
    assert reach(np.array([mean]), count=np.array([float(count)]))[0] == pytest.approx(exact(mean, count), abs=1e-3)


def test_what_nobody_expects_is_not_reached():
    assert reach(np.array([0.0]), count=np.array([1.0])).tolist() == [0.0]


def test_scarcity_is_the_demand_over_the_stock():
    columns = cluster(4, cpu_milli=100_000)
    prices = Prices(columns, mix=mix_of((whole(1), 1)), settings=PriceSettings(newsvendor=0))
    # 4 GPUs for pods of one GPU each: four arrivals until none is idle.
    assert prices.at(np.array([4.0])).tolist() == pytest.approx([0.15 * (4 / 4.1) ** 0.8])


def test_the_newsvendor_protects_a_stock_that_demand_may_reach():
    columns = cluster(4, cpu_milli=100_000)
    prices = Prices(columns, mix=mix_of((whole(2), 1)), settings=PriceSettings(scarcity=0))
    # 4 GPUs idle, two a pod: two arrivals are expected, and two would exhaust the stock.
    assert prices.at(np.array([2.0])).tolist() == pytest.approx([0.3 * 2 * exact(2.0, 2)], abs=1e-6)
    assert prices.at(np.array([0.0])).tolist() == [0]


def test_cpu_that_runs_out_first_ends_the_arrivals():
    columns = cluster(4, cpu_milli=2000)
    prices = Prices(columns, mix=mix_of((whole(1, cpu_milli=1000), 1)), settings=PriceSettings(newsvendor=0))
    assert prices.at(np.array([2.0])).tolist() == pytest.approx([0.15 * (2 / 2.1) ** 0.8])


def test_pods_without_devices_weigh_a_quarter():
    columns = cluster(4, cpu_milli=8000)
    prices = Prices(columns, mix=mix_of((host(2000), 1)), settings=PriceSettings(newsvendor=0))
    assert prices.at(np.array([4.0])).tolist() == pytest.approx([0.15 * (1 / 4.1) ** 0.8])


def test_a_full_cluster_that_turns_over_still_guards_its_stock():
    columns = cluster(4, cpu_milli=100_000)
    put(columns, whole(4))
    filling, turning = (
        Prices(columns, mix=mix_of((whole(1), 1)), settings=PriceSettings(scarcity=0, horizon=horizon))
        for horizon in (0.0, 2.0)
    )
    assert filling.at(np.array([1.0])).tolist() == [0]
    assert turning.at(np.array([1.0]))[0] > 0.29


@pytest.mark.parametrize("mean", [1.0, 20.0, 30.0, 40.0])
def test_up_to_thirty_two_the_tail_is_the_exact_sum(mean):
    counts = np.array([1.0, 31.0, 32.0])
    found = reach(np.full(3, mean), count=counts)
    assert found.tolist() == pytest.approx([exact(mean, int(count)) for count in counts], abs=1e-12)


def test_pods_that_ask_for_nothing_cost_nothing():
    columns = cluster(4)
    prices = Prices(columns, mix=mix_of((host(0), 1)), settings=PriceSettings())
    assert prices.at(np.array([4.0])).tolist() == [0]


def test_prices_follow_what_is_idle_now():
    columns = cluster(4, cpu_milli=100_000)
    prices = Prices(columns, mix=mix_of((whole(1), 1)), settings=PriceSettings(newsvendor=0))
    put(columns, whole(2))
    assert prices.at(np.array([2.0])).tolist() == pytest.approx([0.15 * (2 / 2.1) ** 0.8])
    other = cluster(8, cpu_milli=100_000)
    prices.follow(other)
    assert prices.at(np.array([8.0])).tolist() == pytest.approx([0.15 * (8 / 8.1) ** 0.8])
