"""Prices: the Poisson tail against exact sums, and both terms by hand."""

import math
from dataclasses import replace

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
    mix = mix_of((whole(1, cpu_milli=1000), 1))
    prices = Prices(columns, mix=mix, settings=PriceSettings(newsvendor=0, cpu_cost=0))
    assert prices.at(np.array([2.0])).tolist() == pytest.approx([0.15 * (2 / 2.1) ** 0.8])


def test_where_cpu_is_short_a_place_costs_less_by_its_cpu():
    # 1 CPU for 4 GPUs, and pods request 2 CPUs for a GPU on average.
    columns = cluster(4, cpu_milli=1000)
    mix = mix_of((whole(1, cpu_milli=500), 5), (whole(1, cpu_milli=2000), 4), (whole(1, cpu_milli=4000), 2),
                 (host(1500), 1))  # fmt: skip
    settings = PriceSettings(newsvendor=0)
    found, without = (
        Prices(columns, mix=mix, settings=each).at(np.full(4, 4.0))
        for each in (settings, replace(settings, cpu_cost=0))
    )
    mean_gpus, mean_cpu_milli = 11 / 12, (5 * 500 + 4 * 2000 + 2 * 4000 + 1500) / 12
    costs = [0.7 * cpu_milli * mean_gpus / mean_cpu_milli for cpu_milli in (500, 2000, 4000)]
    assert found.tolist() == pytest.approx([*(without[:3] * np.maximum(0, 1 - np.array(costs))), 0.0])


@pytest.mark.parametrize(("cpu_milli", "guarded"), [(5000, 1.0), (4000, 1.0), (3000, 0.5), (2000, 0.0), (1000, 0.0)])
def test_where_cpu_is_short_less_stock_is_guarded(cpu_milli, guarded):
    columns = cluster(4, cpu_milli=cpu_milli)
    mix = mix_of((whole(1, cpu_milli=1000), 1))
    settings = PriceSettings(scarcity=0, horizon=100)
    found = Prices(columns, mix=mix, settings=settings).at(np.array([1.0]))
    assert found.tolist() == pytest.approx([0.3 * guarded], abs=1e-6)


def test_classes_without_devices_alone_have_no_shortage_of_cpu():
    columns = cluster(4, cpu_milli=1000)
    found = Prices(columns, mix=mix_of((host(2000), 1)), settings=PriceSettings()).at(np.array([1.0]))
    assert found[0] > 0


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
