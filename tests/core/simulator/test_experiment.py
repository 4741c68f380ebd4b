"""The experiment and its curve: by hand on one node, and the small cluster's figures under every policy."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.fgd import fgd
from dovetail.fragmentation.pod_shapes import Choice
from dovetail.simulator.arrivals import Visit, filling
from dovetail.simulator.curve import allocation_at, average_allocation, by_kind, fragmentation_at, report
from dovetail.simulator.experiment import Outcome, run
from dovetail.simulator.parallel import run_all, run_one
from dovetail.simulator.policies import POLICIES
from tests.core.fragmentation.builders import cluster, host, mix_of, share, whole
from tests.core.simulator.builders import make_scene

EXPECTED = mix_of((whole(1), 1))


def outcome_of(*shapes, columns: Columns | None = None, **arguments) -> Outcome:
    columns = columns or cluster(4)
    ticks = itertools.count()
    visits = arguments.pop("visits", None) or filling(shapes)
    return run(
        "fgd",
        policy=fgd(columns, mix=EXPECTED),
        columns=columns,
        visits=visits,
        expected=EXPECTED,
        clock=lambda: float(next(ticks)),
        **arguments,
    )


def test_refused_pods_count_as_arrived_and_by_kind():
    outcome = outcome_of(whole(2), whole(4), share(500), host(99000), whole(1))
    assert outcome.arrived_milli.tolist() == [2000, 6000, 6500, 6500, 7500]
    assert outcome.allocated_milli.tolist() == [2000, 2000, 2500, 2500, 3500]
    assert outcome.refused == {"4 GPUs": 1, "no GPU": 1}
    assert (outcome.placed, outcome.failed) == (3, 2)


def test_pods_that_leave_give_back_what_they_had():
    visits = [
        Visit(shape=whole(4), at=0.0, leaves_at=2.0),
        Visit(shape=whole(4), at=1.0, leaves_at=9.0),
        Visit(shape=whole(3), at=2.0, leaves_at=3.0),
    ]
    assert outcome_of(visits=visits).allocated_milli.tolist() == [4000, 4000, 3000]


def test_time_is_told_by_the_clock_without_what_is_only_measured():
    # Each look at the clock is a second: one for the run, and one up to each measure of the fragments.
    outcome = outcome_of(whole(1), whole(1))
    assert outcome.seconds == 3
    assert outcome.placements_per_second == pytest.approx(2 / 3)


def test_notice_hears_the_end():
    heard: list[int] = []
    outcome_of(*[host(1)] * 300, notice=heard.append)
    assert heard == [0, 256, 300]


def test_the_value_at_a_load_is_the_mean_where_the_load_rounds_to_it():
    outcome = outcome_of(*[share(1)] * 3, columns=cluster(1))
    flat = replace(
        outcome,
        capacity_milli=1000,
        arrived_milli=np.array([896.0, 904.0, 1000.0]),
        allocated_milli=np.array([800.0, 820.0, 900.0]),
    )
    assert allocation_at(flat, percent=90) == 81
    assert allocation_at(flat, percent=95) == 82  # leapt over: what it was before
    assert allocation_at(flat, percent=100) == 90
    assert allocation_at(flat, percent=110) is None


def test_fragments_are_those_of_the_cluster_when_the_load_was_reached():
    outcome = outcome_of(share(500), whole(1), columns=cluster(2))
    # 500 milli left on the first device are none for pods of one whole device.
    assert outcome.fragments_milli == {25: 500, 75: 500}
    assert fragmentation_at(outcome, percent=50) == 25
    assert fragmentation_at(outcome, percent=90) is None


def test_the_average_is_over_time_and_after_the_warm_up():
    visits = [Visit(shape=whole(1), at=at) for at in (0.0, 1.0, 4.0, 5.0)]
    # From 1 to 4 two devices of four, from 4 to 5 three.
    assert average_allocation(outcome_of(visits=visits)) == pytest.approx((3 * 50 + 75) / 4)
    assert average_allocation(outcome_of(visits=visits), warm_up=99) is None


def test_a_report_has_what_programs_read():
    told = report(outcome_of(*[whole(1)] * 6))
    keys = ["policy", "allocation", "fragmentation", "failed", "failed_by_class", "placements_per_second"]
    assert list(told) == keys
    assert told["allocation"] == {"90": 75.0, "95": 75.0, "100": 100.0, "110": 100.0, "130": 100.0}
    assert told["failed"] == 2
    assert told["failed_by_class"] == {"1 GPU": 2}


def test_kinds_of_refused_pods_come_by_their_size():
    refused = {"8 GPUs": 1, "16 GPUs": 1, "share": 3, "1 GPU": 2, "no GPU": 4}
    assert list(by_kind(refused)) == ["no GPU", "share", "1 GPU", "8 GPUs", "16 GPUs"]


def test_what_is_taken_when_it_begins_counts_as_arrived_and_allocated():
    columns = cluster(4)
    columns.place(Choice(shape=whole(3), node=0, devices=(0, 1, 2)))
    outcome = outcome_of(whole(1), whole(1), columns=columns)
    assert outcome.arrived_milli.tolist() == [4000, 5000]
    assert outcome.allocated_milli.tolist() == [4000, 4000]
    assert outcome.begun_milli == 3000
    # What was passed before it began is not known; what one pod leaps over is as before the leap.
    assert [allocation_at(outcome, percent=percent) for percent in (70, 75, 90, 100)] == [None, 75, 75, 100]


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_run(name: str):
    first, again = (run_one(name, scene=make_scene(seed=3, copies=2)) for _ in range(2))
    assert first.allocated_milli.tolist() == again.allocated_milli.tolist()


# Allocation at 100 and 130 % arrived on five copies of the small cluster, some 300 arrivals.
GOLDEN = {
    "ph": (94.906, 94.906),
    "ph-online": (94.565, 94.565),
    "fgd": (94.906, 94.906),
    "fgd-online": (93.118, 93.118),
    "bestfit": (94.429, 94.429),
    "gpupacking": (92.824, 92.824),
    "pack": (94.565, 94.565),
    "balanced": (94.565, 94.565),
    "spread": (80.924, 86.709),
    "random": (83.641, 89.426),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_small_cluster_comes_out_as_ever(name: str):
    outcome = run_one(name, scene=make_scene(copies=5))
    assert (allocation_at(outcome, percent=100), allocation_at(outcome, percent=130)) == GOLDEN[name]


def test_pods_come_and_go_under_every_policy_and_nothing_is_lost():
    scene = make_scene(percent=300, departures=True)
    for name in POLICIES:
        outcome = run_one(name, scene=scene)
        assert 50 < (average_allocation(outcome, warm_up=0.5) or 0) <= 100


def test_processes_give_what_this_process_gives():
    scene, heard = make_scene(), []
    outcomes = run_all(
        ["fgd", "random"], scene=scene, processes=2, notice=lambda name, done: heard.append((name, done))
    )
    assert [outcome.policy for outcome in outcomes] == ["fgd", "random"]
    for outcome in outcomes:
        assert outcome.allocated_milli.tolist() == run_one(outcome.policy, scene=scene).allocated_milli.tolist()
    assert ("fgd", 0) in heard
