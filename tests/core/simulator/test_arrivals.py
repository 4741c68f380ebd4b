"""Arrivals: how much is drawn, what is tied, and who stays how long."""

import numpy as np
import pytest

from dovetail.simulator.arrivals import filling, sample, tied, visiting
from dovetail.simulator.trace import columns_of
from tests.core.simulator.builders import nodes, pods


def random(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_pods_are_drawn_until_they_ask_for_enough():
    drawn = sample(pods(), capacity_milli=100_000, percent=130, random=random())
    asked = sum(shape.gpu_milli for shape in drawn)
    assert asked >= 130_000
    assert asked - drawn[-1].gpu_milli < 130_000


def test_the_same_seed_draws_the_same():
    first, again, other = (
        sample(pods(), capacity_milli=100_000, percent=100, random=random(seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_nobody_leaves_who_only_fills():
    visits = filling(pods())
    assert [visit.at for visit in visits[:3]] == [0, 1, 2]
    assert all(visit.leaves_at == float("inf") for visit in visits)


def test_as_many_are_tied_as_asked_and_only_to_models_that_have_room():
    columns = columns_of(nodes())
    shapes = sample(pods(), capacity_milli=3_000_000, percent=100, random=random())
    result = tied(shapes, columns=columns, percent=50, random=random())
    asking = [(old, new) for old, new in zip(shapes, result, strict=True) if old.gpus]
    assert sum(old != new or len(new.models) == 1 for old, new in asking) / len(asking) == pytest.approx(0.5, abs=0.03)
    # Only V100 and A10 nodes have eight.
    assert {new.models for _, new in asking if new.gpus == 8} == {(), ("V100",), ("A10",)}
    assert all(old == new for old, new in zip(shapes, result, strict=True) if not old.gpus)


def test_nothing_is_tied_at_zero_percent():
    assert tied(pods(), columns=columns_of(nodes()), percent=0, random=random()) == pods()


def test_pods_that_leave_are_in_balance_from_the_start():
    capacity = 1_000_000
    shapes = sample(pods(), capacity_milli=capacity, percent=600, random=random())
    visits = visiting(shapes, capacity_milli=capacity, load=1.0, random=random())
    asked = [
        sum(visit.shape.gpu_milli for visit in visits if visit.at <= time < visit.leaves_at) for time in (0, 1, 2, 4)
    ]
    assert asked == pytest.approx([capacity] * 4, rel=0.1)
    assert np.mean([visit.leaves_at - visit.at for visit in visits]) == pytest.approx(1, rel=0.1)
