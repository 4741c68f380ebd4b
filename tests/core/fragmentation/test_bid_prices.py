"""Bid prices: exact examples, what leaves them at 0, and that they are the least that what is idle can cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.fragmentation.bid_prices import SUPPLIES, BidPrices
from dovetail.fragmentation.capacity import CPU, FREE_DEVICES, Columns, Floats
from dovetail.fragmentation.headroom import Headroom
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.priced_headroom import PH
from dovetail.fragmentation.prices import PHSettings, PriceSettings
from dovetail.fragmentation.workload_mix import Mix
from tests.core.fragmentation.builders import cluster, host, mix_of, put, share, whole
from tests.core.fragmentation.strategies import clusters, mixes

ALONE = PHSettings(gradient=0, residual=0, prices=PriceSettings(scarcity=0, newsvendor=0))


def idle(columns: Columns) -> Floats:
    """Idle hundredths of CPUs and devices, [2T]."""
    return Headroom(columns, mix=mix_of(), by_model=SUPPLIES).total


def prices(columns: Columns, mix: Mix) -> dict[str, tuple[float, float]]:
    """By model, the price of a CPU and of a device in GPUs."""
    cpus, devices = np.split(100 * BidPrices(columns, mix=mix, tolerated_change=0.0).at(idle(columns)), 2)
    found = zip(cpus.tolist(), devices.tolist(), strict=True)
    return dict(zip(columns.model_names, found, strict=True))


def rich_and_poor() -> Columns:
    """A T4 node with 40 CPUs and a V100 node with 8, both with 4 devices."""
    return Columns(cpu_milli=[40_000, 8000], memory_mib=[65536] * 2, gpus=[4, 4], models=["T4", "V100"])


def test_the_cpu_of_one_model_is_short_and_the_devices_of_another():
    # Each device in use takes 4 CPUs: the V100s' 8 CPUs serve two devices, and the T4s' four take 16 of 40.
    found = prices(rich_and_poor(), mix_of((whole(1, cpu_milli=4000), 1)))
    assert found == {"T4": (0, 1), "V100": (pytest.approx(0.25), 0)}


def test_nothing_has_a_price_where_demand_leaves_some_over():
    assert prices(cluster(4, 4), mix_of((whole(1), 3), (share(500), 1))) == {"V100": (0, 0)}


def test_a_model_that_more_pods_name_than_it_has_devices_has_a_price():
    columns = cluster(4, 4, models=["T4", "V100"])
    mix = mix_of((whole(1, models=("V100",)), 3), (whole(1), 1))
    assert prices(columns, mix) == {"T4": (0, 0), "V100": (0, 1)}


def test_a_model_with_a_substitute_has_no_price():
    columns = cluster(4, 4, models=["T4", "V100"])
    mix = mix_of((whole(1, models=("T4", "V100")), 3), (whole(1), 1))
    assert prices(columns, mix) == {"T4": (0, 0), "V100": (0, 0)}


def test_pods_go_only_where_they_fit_an_empty_node():
    columns = cluster(8, 2, 2, 2, 2, models=["V100", "T4", "T4", "T4", "T4"], cpu_milli=80_000)
    assert prices(columns, mix_of((whole(8), 1), (whole(2), 1)))["V100"] == (0, 1)
    assert prices(columns, mix_of((whole(2), 1)))["V100"] == (0, 0)
    cpus = mix_of((whole(2, cpu_milli=81_000), 1), (whole(2), 1))
    assert prices(columns, cpus) == {"T4": (0, 0), "V100": (0, 0)}


def test_a_cpu_without_devices_is_worth_half():
    """The pods without devices use up what the T4s' pods leave over, and then their CPU has a price of its own."""
    mix = mix_of((whole(1, cpu_milli=4000), 1), (host(8000), 1))
    # 1 device for 12 CPUs on average. A device of the T4s is worth 1, less 4 CPUs.
    worth = 0.5 / 12
    assert prices(rich_and_poor(), mix) == {"T4": (pytest.approx(worth), pytest.approx(1 - 4 * worth)),
                                            "V100": (pytest.approx(0.25), 0)}  # fmt: skip


@pytest.mark.parametrize(
    "mix", [mix_of(), mix_of((host(1000), 1)), mix_of((whole(1, models=("A10",)), 1))], ids=["none", "cpu", "foreign"]
)
def test_without_a_pod_that_takes_a_device_here_nothing_has_a_price(mix: Mix):
    assert prices(cluster(4), mix) == {"V100": (0, 0)}


def test_a_full_cluster_has_no_prices():
    columns = cluster(2)
    put(columns, whole(2))
    assert prices(columns, mix_of((whole(1), 1))) == {"V100": (0, 0)}


@settings(max_examples=80, deadline=None)
@given(clusters(), mixes(), st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=6, max_size=6))
def test_no_other_prices_ask_less_for_what_is_idle_and_leave_the_pods_less(columns: Columns, mix: Mix, other):
    """The prices solve the dual program. Classes that count as one differ by a thousandth here."""
    found = prices(columns, mix)
    others = dict(zip(found, zip(other[:3], other[3:], strict=True), strict=False))
    least = dual_value(columns, mix, at=found)
    assert least <= dual_value(columns, mix, at=others) * 1.01 + 1e-6
    assert least >= 0


def dual_value(columns: Columns, mix: Mix, *, at: dict[str, tuple[float, float]]) -> float:
    """What is idle at these prices, and what each pod to come is worth beyond its cheapest place."""
    gpus = mix.field("gpus") * mix.field("share_milli") / 1000
    cpus = mix.field("cpu_milli") / 1000
    free = np.split(idle(columns) / 100, 2)
    value = float(
        sum(price @ np.array(amounts) for price, *amounts in zip(map(np.array, at.values()), *free, strict=True))
    )
    mean_gpus = float(mix.probability @ gpus)
    if not mean_gpus:
        return value
    arrivals = 0.99 * free[1].sum() / mean_gpus
    of_cpu = 0.5 * mean_gpus / max(1e-9, float(mix.probability @ cpus))
    for one, probability, needs in zip(mix.classes, mix.probability, zip(cpus, gpus, strict=True), strict=True):
        worth = needs[1] or needs[0] * of_cpu
        places = {
            name: needs[0] * at[name][0] + needs[1] * at[name][1]
            for model, name in enumerate(columns.model_names)
            if columns.allowed_models(one)[model]
            and (columns.capacity[columns.model == model][:, [CPU, FREE_DEVICES]].max(axis=0)
                 >= [one.cpu_milli, one.gpus]).all()
        }  # fmt: skip
        if places:
            value += arrivals * float(probability) * max(0.0, worth - min(places.values()))
    return value


def test_a_pod_that_names_no_model_leaves_the_one_that_is_short():
    columns = cluster(4, 4, models=["T4", "V100"])
    mix = mix_of((whole(1, models=("T4",)), 3), (whole(1), 1))
    choice = PH(columns, mix=mix, settings=ALONE).choose(whole(1))
    assert choice is not None
    assert columns.model_names[columns.model[choice.node]] == "V100"


@pytest.mark.parametrize(("cpu_milli", "node"), [(6000, 0), (2000, 1)])
def test_a_pod_with_much_cpu_goes_where_cpu_is_left(cpu_milli: int, node: int):
    mix = mix_of((whole(1, cpu_milli=4000), 1))
    choice = PH(rich_and_poor(), mix=mix, settings=ALONE).choose(whole(1, cpu_milli=cpu_milli))
    assert choice is not None
    assert choice.node == node


def test_bid_prices_stay_until_so_much_is_taken():
    # 12 CPUs for 8 devices: each CPU that a pod without devices takes makes CPU scarcer.
    columns = cluster(*[1] * 8, cpu_milli=1500)
    settings = PHSettings(refresh_placements=1, refresh_bids=0.3)
    appraisal = PHAppraisal(columns, mix=mix_of((whole(1), 1)), settings=settings)
    seen = []
    for node in range(4):
        appraisal.refresh()
        seen.append(appraisal.price[1:].tolist())
        put(columns, host(1400), node=node)
    assert seen[0] == seen[1] == seen[2] != seen[3]


def test_bid_prices_change_where_as_much_is_idle_on_other_nodes():
    """Pods leave one model while as many come to the other: the sums stay, and the model that is short changes."""
    columns = cluster(4, 4, models=["T4", "V100"])
    mix = mix_of((whole(1, models=("T4",)), 3), (whole(1, models=("V100",)), 3), (whole(1), 1))
    settings = PHSettings(refresh_placements=1, refresh_bids=1.0)
    running = [put(columns, whole(1), node=0) for _ in range(3)]
    appraisal = PHAppraisal(columns, mix=mix, settings=settings)
    appraisal.refresh()
    before = appraisal.price[3:].tolist()
    for choice in running:
        columns.release(choice)
        put(columns, whole(1), node=1)
    appraisal.refresh()
    after = appraisal.price[3:].tolist()
    assert before[2] == after[3] > before[3] == after[2]


def test_a_copy_has_the_prices_of_what_is_idle_now():
    columns = cluster(8, cpu_milli=12_000)
    appraisal = PHAppraisal(columns, mix=mix_of((whole(1), 1)), settings=PHSettings(refresh_bids=1.0))
    appraisal.refresh()
    put(columns, host(7500))
    there = appraisal.over(columns.copy())
    there.refresh()
    assert not appraisal.price[1:].any()
    assert there.price[1:].any()
