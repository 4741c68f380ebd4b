"""The mix: which shapes are one class, and which classes count."""

import pytest

from dovetail.fragmentation.workload_mix import by_class, covering
from tests.core.fragmentation.builders import cluster, host, mix_of, share, whole


def test_shapes_that_differ_in_memory_are_one_class_with_their_mean():
    found = by_class({whole(1, memory_mib=1000): 3, whole(1, memory_mib=2000): 1, host(500): 2})
    assert found.classes == (whole(1, memory_mib=1250), host(500))
    assert found.weights == (4, 2)


@pytest.mark.parametrize(("percent", "classes"), [(50, 1), (80, 2), (81, 3), (95, 3), (100, 4)])
def test_the_shortest_prefix_that_covers_is_kept(percent: int, classes: int):
    expected = mix_of((whole(1), 50), (whole(2), 30), (whole(4), 15), (whole(8), 5))
    assert len(covering(expected, percent=percent).classes) == classes


def test_probabilities_are_shares_of_the_weights():
    assert mix_of((whole(1), 3), (whole(2), 1)).probability.tolist() == [0.75, 0.25]


def test_classes_know_the_models_of_a_cluster():
    expected = mix_of((share(500, models=("T4",)), 1), (whole(1), 1))
    assert expected.allowed(cluster(1, 1, models=["A10", "T4"])).tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize(("weight", "probability"), [(1, 1.0), (2, 1.0), (0, 0.0)])
def test_the_probability_of_the_only_class(weight: int, probability: float):
    assert mix_of((whole(1), weight)).probability.tolist() == [probability]


def test_of_classes_that_come_as_often_the_smaller_is_first():
    assert by_class({whole(2): 1, whole(1): 1, host(5): 2}).classes == (host(5), whole(1), whole(2))
