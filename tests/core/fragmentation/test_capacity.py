"""The columns: what placing and releasing changes, and what the log tells."""

import numpy as np
from hypothesis import given

from dovetail.fragmentation.capacity import FREE_DEVICES, MOST_LEFT, Columns, Room, free_devices, needs
from dovetail.fragmentation.policy import fitting
from tests.core.fragmentation import strategies
from tests.core.fragmentation.builders import cluster, fits, host, put, share, whole


def test_a_share_leaves_the_rest_of_its_device():
    columns = cluster(2)
    put(columns, share(300, cpu_milli=4000, memory_mib=1024), device=1)
    assert columns.left.tolist() == [[1000, 700]]
    assert columns.spare.tolist() == [[12000, 64512, 1000, 1]]


def test_whole_devices_are_the_first_free_ones():
    columns = cluster(4)
    put(columns, share(100), device=1)
    assert free_devices(columns, node=0, count=2) == (0, 2)


def test_what_is_released_is_as_if_it_never_was():
    columns, untouched = cluster(2, 4), cluster(2, 4)
    for choice in [put(columns, share(300), node=1, device=2), put(columns, whole(2), node=0)]:
        columns.release(choice)
    assert np.array_equal(columns.left, untouched.left)
    assert np.array_equal(columns.spare, untouched.spare)
    assert columns.idle_milli == columns.capacity_milli == 6000


def test_the_log_names_each_touched_node_once_in_order():
    columns = cluster(4, 4, 4)
    before = columns.changes
    for node in (2, 0, 2):
        put(columns, share(100), node=node, device=0)
    assert columns.touched_since(before).tolist() == [0, 2]
    assert columns.touched_since(columns.changes).tolist() == []


def test_the_log_outgrows_its_first_room():
    columns = cluster(1)
    for _ in range(2000):
        columns.release(put(columns, host(1)))
    assert columns.changes == 4000
    assert columns.touched_since(3999).tolist() == [0]


def test_a_copy_goes_its_own_way():
    columns = cluster(2)
    other = columns.copy()
    put(other, whole(2))
    assert columns.left.tolist() == [[1000, 1000]]
    assert columns.changes == 0


def test_a_subset_is_those_nodes_with_what_runs_there():
    columns = cluster(2, 4, 8)
    put(columns, whole(3), node=2)
    some = columns.subset(np.array([0, 2]))
    assert some.gpus.tolist() == [2, 8]
    assert (some.capacity_milli, some.idle_milli) == (10_000, 7_000)


def test_a_family_takes_all_its_models_and_a_full_name_only_its_own():
    columns = cluster(1, 1, 1, models=["V100M16", "V100M32", "T4"])
    assert columns.allowed(share(100, models=("V100",))).tolist() == [True, True, False]
    assert columns.allowed(share(100, models=("V100M32", "T4"))).tolist() == [False, True, True]


@given(strategies.clusters(), strategies.histories)
def test_what_is_derived_agrees_with_the_devices_after_any_history(columns: Columns, history):
    running = []
    for step in history:
        strategies.apply(columns, step, running=running)
    left = columns.left.tolist()
    assert columns.spare[:, MOST_LEFT].tolist() == [max(row) for row in left]
    assert columns.spare[:, FREE_DEVICES].tolist() == [row.count(1000) for row in left]
    assert columns.idle_milli == columns.left.sum()
    first = [[value not in row[:at] for at, value in enumerate(row)] for row in left]
    assert columns.distinct.tolist() == first


@given(strategies.clusters(), strategies.histories, strategies.shapes())
def test_one_comparison_tells_whether_a_pod_fits(columns: Columns, history, shape):
    running = []
    for step in history:
        strategies.apply(columns, step, running=running)
    found = fitting(columns, rows=np.arange(len(columns)), needs=needs(shape), allowed=columns.allowed(shape))
    assert found.tolist() == [fits(columns, shape, node=node) for node in range(len(columns))]


@given(strategies.clusters(), strategies.histories)
def test_rows_that_are_equal_in_all_are_found(columns: Columns, history):
    running = []
    for step in history:
        strategies.apply(columns, step, running=running)
    rows = np.arange(len(columns))
    some, kind = columns.alike(rows)
    states = [
        (*columns.left[row].tolist(), *columns.spare[row].tolist(), int(columns.model[row])) for row in rows.tolist()
    ]
    assert [states[row] for row in some[kind]] == states
    assert len(some) == len(set(states))


def test_a_node_can_become_any_other() -> None:
    columns, expected = cluster(2, 0, models=["V100", "V100"]), cluster(2, 4, models=["V100", "V100"])
    before = columns.changes
    columns = Columns(cpu_milli=[16000, 0], memory_mib=[65536, 0], gpus=[2, 0], models=["V100", "V100"], width=4)
    room = Room(
        model="V100", cpu_milli=16000, memory_mib=65536, left=(1000,) * 4, gpus=4,
        cpu_capacity_milli=16000, memory_capacity_mib=65536,
    )  # fmt: skip
    columns.become(1, room=room)
    columns.become(1, room=room)
    assert columns.changes == before + 1
    for name in ("spare", "left", "distinct", "capacity", "gpus", "model"):
        assert getattr(columns, name).tolist() == getattr(expected, name).tolist(), name
    assert (columns.idle_milli, columns.idle_cpu_milli) == (expected.idle_milli, expected.idle_cpu_milli)
    assert (columns.capacity_milli, columns.capacity_cpu_milli) == (6000, 32000)


def test_a_node_becomes_what_it_is_said_to_be_and_the_sums_follow():
    columns = cluster(2, 2, cpu_milli=1000)
    columns.become(
        0,
        room=Room(
            model="V100", cpu_milli=400, memory_mib=10, left=(300, 1000), gpus=2,
            cpu_capacity_milli=500, memory_capacity_mib=20,
        ),
    )  # fmt: skip
    assert columns.left[0].tolist() == [300, 1000]
    assert columns.spare[0].tolist() == [400, 10, 1000, 1]
    assert columns.capacity[0].tolist() == [500, 20, 1000, 2]
    assert (columns.idle_milli, columns.idle_cpu_milli) == (3300, 1400)
    assert (columns.capacity_milli, columns.capacity_cpu_milli) == (4000, 1500)


def test_a_node_that_has_lost_its_devices_has_no_capacity_of_them():
    columns = cluster(2, cpu_milli=1000)
    nothing = Room(
        model="V100", cpu_milli=0, memory_mib=0, left=(), gpus=0, cpu_capacity_milli=0, memory_capacity_mib=0
    )
    columns.become(0, room=nothing)
    assert columns.capacity[0].tolist() == [0, 0, 0, 0]
    assert (columns.idle_milli, columns.capacity_milli, columns.idle_cpu_milli) == (0, 0, 0)
    before = columns.changes
    columns.become(0, room=nothing)
    assert columns.changes == before, "what is as before touches nothing"
