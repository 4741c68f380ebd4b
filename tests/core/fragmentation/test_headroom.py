"""Headroom: by hand, by its definition, and after any history."""

import numpy as np
from hypothesis import given

from dovetail.fragmentation.headroom import Headroom
from tests.core.fragmentation import strategies
from tests.core.fragmentation.builders import cluster, host, mix_of, plain_headroom, put, share, whole


def total(columns, *classes) -> list[float]:
    return Headroom(columns, mix=mix_of(*((one, 1) for one in classes))).total.tolist()


def test_shares_count_device_by_device():
    columns = cluster(2)
    put(columns, share(500), device=0)
    # 400 goes once into 500 and twice into 1000.
    assert total(columns, share(400), share(600)) == [3, 1]


def test_whole_devices_count_by_node_not_by_cluster():
    assert total(cluster(3, 1), whole(2), whole(1)) == [1, 4]


def test_cpu_and_memory_set_limits_as_well():
    columns = cluster(4, cpu_milli=6000, memory_mib=9000)
    assert total(columns, whole(1, cpu_milli=2000), whole(1, memory_mib=4096), host(1500)) == [3, 2, 4]


def test_a_model_that_is_not_allowed_leaves_none():
    columns = cluster(2, 2, models=["T4", "A10"])
    assert total(columns, whole(1, models=("T4",)), whole(1, models=("V100",))) == [2, 0]


def test_the_change_tells_what_each_class_loses():
    columns = cluster(2)
    headroom = Headroom(columns, mix=mix_of((share(500), 1), (whole(2), 1)))
    by_share = headroom.change(share(500), rows=np.array([0]), left=np.array([1000]))
    by_whole = headroom.change(whole(1), rows=np.array([0]), left=None)
    assert by_share.tolist() == [[-1, -1]]
    assert by_whole.tolist() == [[-2, -1]]


@given(strategies.clusters(), strategies.mixes(), strategies.histories)
def test_it_is_its_definition_after_any_history(columns, expected, history):
    headroom, running = Headroom(columns, mix=expected), []
    for step in history:
        strategies.apply(columns, step, running=running)
        headroom.sync()
        nodes = range(len(columns))
        plain = [sum(plain_headroom(columns, one, node=node) for node in nodes) for one in expected.classes]
        assert headroom.total.tolist() == plain


def test_the_smallest_share_goes_a_thousand_times_into_a_device():
    assert total(cluster(1, cpu_milli=10**9), share(1), share(2), share(1000)) == [1000, 500, 1]


def test_pods_that_ask_for_no_device_find_their_room_on_nodes_without_devices_too():
    columns = cluster(0, 1, cpu_milli=6000)
    assert total(columns, host(2000), whole(1)) == [6, 1]
    headroom = Headroom(columns, mix=mix_of((host(2000), 1), (whole(1), 1)))
    assert headroom.change(host(3000), rows=np.array([0, 1]), left=None).tolist() == [[-2, 0], [-2, 0]]
    assert headroom.change(whole(1, cpu_milli=0), rows=np.array([1]), left=None).tolist() == [[0, -1]]


def test_the_sum_follows_each_change_and_its_end():
    columns = cluster(2, 2)
    headroom = Headroom(columns, mix=mix_of((whole(1), 1)))
    taken = put(columns, whole(2), node=1)
    headroom.sync()
    assert headroom.total.tolist() == [2]
    columns.release(taken)
    headroom.sync()
    headroom.sync()
    assert headroom.total.tolist() == [4]
