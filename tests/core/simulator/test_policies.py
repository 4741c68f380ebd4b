"""The baselines, each by what sets it apart."""

import numpy as np
import pytest

from dovetail.fragmentation.pod_shapes import Choice
from dovetail.simulator.policies.baselines import RandomFit, bestfit, gpupacking, spread
from tests.core.fragmentation.builders import cluster, host, put, share, whole


def test_best_fit_takes_the_node_that_it_fills_most():
    columns = cluster(8, 2, 4)
    assert bestfit(columns).choose(whole(2)) == Choice(shape=whole(2), node=1, devices=(0, 1))


def test_best_fit_takes_the_tightest_device():
    columns = cluster(3)
    put(columns, share(300), device=1)
    put(columns, share(500), device=2)
    choice = bestfit(columns).choose(share(400))
    assert choice is not None
    assert choice.devices == (2,)


def test_best_fit_counts_whole_percents_and_gives_ties_to_the_first():
    columns = cluster(8, 8, cpu_milli=128_000)
    put(columns, host(1000), node=1)
    choice = bestfit(columns).choose(whole(1, cpu_milli=0))
    assert choice is not None
    assert choice.node == 0


@pytest.mark.parametrize(
    ("used", "node"),
    [
        ({0: 500, 1: 700}, 1),  # the fuller of two used devices
        ({1: 900}, 1),  # a used node with free devices before an idle node
        ({}, 2),  # the idle node with the fewest devices
    ],
)
def test_packing_takes_used_devices_then_used_nodes_then_small_idle_ones(used: dict[int, int], node: int):
    columns = cluster(4, 4, 2)
    for at, milli in used.items():
        put(columns, share(milli), node=at, device=0)
    choice = gpupacking(columns).choose(share(300))
    assert choice is not None
    assert choice.node == node


def test_packing_does_not_care_where_pods_without_devices_go():
    columns = cluster(4, 4)
    put(columns, whole(2), node=1)
    choice = gpupacking(columns).choose(host(1000))
    assert choice is not None
    assert choice.node == 0


def test_spread_takes_the_idlest_node_and_device():
    columns = cluster(2, 2)
    put(columns, share(300), node=0, device=0)
    put(columns, share(200), node=1, device=0)
    choice = spread(columns).choose(share(100))
    assert choice == Choice(shape=share(100), node=1, devices=(1,))


def test_random_goes_everywhere_it_fits_and_nowhere_else():
    columns = cluster(2, 0, 1, models=["T4", "T4", "A10"])
    policy = RandomFit(columns, random=np.random.default_rng(1))
    chosen = [policy.choose(share(500)) for _ in range(60)]
    assert {(choice.node, choice.devices) for choice in chosen if choice} == {(0, (0,)), (0, (1,)), (2, (0,))}
    assert policy.choose(whole(2, models=("A10",))) is None
    found = policy.choose(whole(2))
    assert found is not None
    assert (found.node, found.devices) == (0, (0, 1))
