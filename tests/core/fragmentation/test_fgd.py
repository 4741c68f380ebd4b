"""FGD: the quantised score, and ties."""

import numpy as np
import pytest

from dovetail.fragmentation.fgd import fgd, quantised
from dovetail.fragmentation.pod_shapes import Choice
from tests.core.fragmentation.builders import cluster, mix_of, put, share, whole


def test_the_score_is_a_whole_percentage_of_the_sigmoid():
    changes = np.array([0.0, 39.0, 41.0, -40.0, -41.0, 2000.0])
    # sigmoid(0.04) is 0.50999 and sigmoid(0.0401) is above 0.51.
    assert quantised(changes).tolist() == [50, 49, 48, 50, 51, 11]


def test_fragmentation_that_does_not_change_scores_exactly_fifty():
    assert quantised(np.array([0.0]))[0] == 50


def test_a_share_goes_where_only_fragments_are_lost():
    columns = cluster(2, 2)
    put(columns, share(500), node=1, device=1)
    choice = fgd(columns, mix=mix_of((whole(1), 1))).choose(share(500))
    assert choice == Choice(shape=share(500), node=1, devices=(1,))


def test_scores_that_differ_by_less_than_a_step_go_to_the_first_node():
    columns = cluster(1, 1)
    # Fragments of 20 milli less on the second node: nearer to best, but not by a step of the score.
    put(columns, share(480), node=0, device=0)
    put(columns, share(500), node=1, device=0)
    choice = fgd(columns, mix=mix_of((whole(1), 1))).choose(share(500))
    assert choice is not None
    assert choice.node == 0


def test_equal_devices_go_to_the_first():
    columns = cluster(4)
    choice = fgd(columns, mix=mix_of((share(500), 1))).choose(share(500))
    assert choice is not None
    assert choice.devices == (0,)


def test_whole_devices_are_the_first_free_ones():
    columns = cluster(4)
    put(columns, share(500), device=0)
    choice = fgd(columns, mix=mix_of((whole(2), 1))).choose(whole(2))
    assert choice is not None
    assert choice.devices == (1, 2)


@pytest.mark.parametrize("shape", [whole(3), share(500, cpu_milli=99000), share(500, models=("T4",))])
def test_what_fits_nowhere_is_refused(shape):
    assert fgd(cluster(2, 2), mix=mix_of((whole(1), 1))).choose(shape) is None
