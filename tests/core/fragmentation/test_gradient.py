"""Fragmentation: by hand, by its definition, and after any history."""

import numpy as np
import pytest
from hypothesis import given

from dovetail.fragmentation.gradient import Gradient
from tests.core.fragmentation import strategies
from tests.core.fragmentation.builders import cluster, host, mix_of, plain_fragmentation, put, share, whole


def fragments(columns, expected) -> list[float]:
    return Gradient(columns, mix=expected).fragmentation().tolist()


def test_milli_on_devices_too_small_for_a_share_are_fragments():
    columns = cluster(2)
    put(columns, share(700), device=0)
    assert fragments(columns, mix_of((share(500), 1))) == [300]


def test_where_a_class_does_not_fit_all_idle_milli_are_fragments():
    columns = cluster(2)
    put(columns, share(700), device=0)
    assert fragments(columns, mix_of((whole(2), 1))) == [1300]
    assert fragments(columns, mix_of((share(500, cpu_milli=99000), 1))) == [1300]
    assert fragments(columns, mix_of((share(500, models=("T4",)), 1))) == [1300]


def test_for_a_class_without_devices_all_idle_milli_are_fragments():
    assert fragments(cluster(2), mix_of((host(1000), 1))) == [2000]


def test_a_full_device_is_no_fragment():
    columns = cluster(2)
    put(columns, whole(1))
    assert fragments(columns, mix_of((share(500), 1))) == [0]


def test_classes_weigh_by_how_often_they_come():
    columns = cluster(2)
    put(columns, share(700), device=0)
    # shares of 500: 300 milli are lost to them; pairs: all 1300 are.
    assert fragments(columns, mix_of((share(500), 3), (whole(2), 1))) == [(3 * 300 + 1300) / 4]


def test_the_change_by_a_share_depends_on_its_device():
    columns = cluster(2)
    put(columns, share(500), device=0)
    gradient = Gradient(columns, mix=mix_of((whole(1), 1)))
    change = gradient.change_by_share(share(500), rows=np.array([0, 0]), left=np.array([500, 1000]))
    # On the used device its 500 lost milli are used up; a free one broken makes all 1500 - 500 left useless.
    assert change.tolist() == [-500, 500]


def test_the_change_by_whole_devices_takes_free_ones():
    columns = cluster(2)
    gradient = Gradient(columns, mix=mix_of((whole(2), 1)))
    assert gradient.change_by_whole(whole(1), rows=np.array([0])).tolist() == [1000]
    assert gradient.change_by_whole(whole(2), rows=np.array([0])).tolist() == [0]


def test_cpu_that_runs_out_strands_devices():
    columns = cluster(2, cpu_milli=4000)
    gradient = Gradient(columns, mix=mix_of((whole(1, cpu_milli=2000), 1)))
    assert gradient.change_by_whole(host(3000), rows=np.array([0])).tolist() == [2000]


@given(strategies.clusters(), strategies.mixes(), strategies.histories)
def test_it_is_its_definition_after_any_history(columns, expected, history):
    gradient, running = Gradient(columns, mix=expected), []
    for step in history:
        strategies.apply(columns, step, running=running)
        found = gradient.fragmentation().tolist()
        assert found == pytest.approx(
            [plain_fragmentation(columns, expected, node=node) for node in range(len(columns))], abs=1e-9
        )


@given(strategies.clusters(), strategies.mixes(), strategies.histories)
def test_the_change_foretold_is_the_change_that_comes(columns, expected, history):
    gradient, running = Gradient(columns, mix=expected), []
    for step in history:
        before = gradient.fragmentation()
        known = len(running)
        untouched = columns.copy()
        strategies.apply(columns, step, running=running)
        if len(running) <= known:
            continue
        choice, rows = running[-1], np.array([running[-1].node])
        foretold = Gradient(untouched, mix=expected)
        if choice.shape.is_share:
            left = untouched.left[rows, choice.devices[0]]
            change = foretold.change_by_share(choice.shape, rows=rows, left=left)
        else:
            change = foretold.change_by_whole(choice.shape, rows=rows)
        came = gradient.fragmentation() - before
        assert change[0] == pytest.approx(came[choice.node], abs=1e-9)


def test_what_is_placed_later_counts_from_the_next_look_on():
    columns = cluster(2)
    gradient = Gradient(columns, mix=mix_of((share(500), 1)))
    assert gradient.fragmentation().tolist() == [0]
    taken = put(columns, share(700), device=0)
    assert gradient.fragmentation().tolist() == [300]
    columns.release(taken)
    assert gradient.fragmentation().tolist() == [0]


def test_each_class_counts_on_its_own_models_with_its_own_cpu():
    """A T4 and two A10: pairs need 3 CPUs, T4 pods 2, and 16 CPUs are asked of any model. All nodes have 4."""
    columns = cluster(1, 2, models=["T4", "A10"], cpu_milli=4000)
    classes = (
        (share(500, models=("T4",), cpu_milli=2000), 1),
        (whole(2, cpu_milli=3000), 1),
        (share(100, cpu_milli=16000), 2),
    )
    # Lost to the T4: 0 for its own class, 1000 for the two others. To the A10: all but the pair lose 2000.
    assert fragments(columns, mix_of(*classes)) == [(0 + 1000 + 2 * 1000) / 4, (2000 + 0 + 2 * 2000) / 4]


@pytest.mark.parametrize(("cpu_milli", "lost"), [(4000, 0), (4001, 2000)])
def test_a_class_that_needs_just_the_cpu_that_is_free_fits(cpu_milli, lost):
    assert fragments(cluster(2, cpu_milli=4000), mix_of((whole(1, cpu_milli=cpu_milli), 1))) == [lost]
