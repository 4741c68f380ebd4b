"""Sets of jobs to move, against trying every set of them and every place for each."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.queue.moves.candidates import Candidate, candidates
from dovetail.queue.moves.residents import RESTART_SECONDS, Residents

SHAPES = (
    Shape(cpu_milli=2000, memory_mib=1024, gpus=1, share_milli=300),
    Shape(cpu_milli=1000, memory_mib=1024, gpus=1, share_milli=500),
    Shape(cpu_milli=4000, memory_mib=1024, gpus=1, share_milli=1000),
    Shape(cpu_milli=2000, memory_mib=1024, gpus=2, share_milli=1000),
    Shape(cpu_milli=5000, memory_mib=1024),
)
WANTED = SHAPES[:4]


def places(shape: Shape, *, columns: Columns) -> Iterator[Choice]:
    """Every place of a pod: each node, and each set of devices there."""
    for node in range(len(columns)):
        if (columns.spare[node, :2] < [shape.cpu_milli, shape.memory_mib]).any():
            continue
        fits = (columns.left[node] >= max(1, shape.share_milli)).nonzero()[0].tolist()
        for devices in combinations(fits, shape.gpus):
            yield Choice(shape=shape, node=node, devices=devices)


def all_fit(shapes: Sequence[Shape], *, columns: Columns) -> bool:
    """Whether all pods have places together, by trying each."""
    if not shapes:
        return True
    for choice in places(shapes[0], columns=columns):
        columns.place(choice)
        fits = all_fit(shapes[1:], columns=columns)
        columns.release(choice)
        if fits:
            return True
    return False


def least_cost(shape: Shape, *, columns: Columns, residents: Residents, keys: Sequence[str]) -> float | None:
    """The cost of the cheapest set of jobs after whose moves all have places, by trying each set; None without one."""
    found = None
    for size in range(len(keys) + 1):
        for moved in combinations(keys, size):
            parts = [residents.parts(key)[0] for key in moved]
            for part in parts:
                columns.release(part)
            cost = sum(residents.lost_of(key, now=0.0) for key in moved)
            if (found is None or cost < found) and all_fit([shape, *(part.shape for part in parts)], columns=columns):
                found = cost
            for part in parts:
                columns.place(part)
    return found


def holds(shape: Shape, *, candidate: Candidate, columns: Columns, residents: Residents) -> bool:
    """Whether the pod and the jobs of a candidate have places together."""
    parts = [residents.parts(key)[0] for key in candidate.keys]
    for part in parts:
        columns.release(part)
    fits = all_fit([shape, *(part.shape for part in parts)], columns=columns)
    for part in parts:
        columns.place(part)
    return fits


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Columns, Residents, list[str]]:
    """Up to three nodes, with jobs wherever they came to."""
    gpus = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    count = len(gpus)
    columns = Columns(cpu_milli=[8000] * count, memory_mib=[8192] * count, gpus=gpus, models=["V100"] * count)
    residents, keys = Residents(width=columns.left.shape[1]), list[str]()
    for number, shape in enumerate(draw(st.lists(st.sampled_from(SHAPES), max_size=6))):
        able = list(places(shape, columns=columns))
        if not able:
            continue
        choice = able[draw(st.integers(0, len(able) - 1))]
        columns.place(choice)
        if draw(st.booleans()):
            keys.append(f"job-{number}")
            residents.add(keys[-1], parts=[choice], started=-float(draw(st.integers(0, 3))) * 1000)
    return columns, residents, keys


@given(clusters(), st.sampled_from(WANTED))
def test_no_candidate_beats_the_exact_search_and_one_job_that_suffices_is_found(
    cluster: tuple[Columns, Residents, list[str]], shape: Shape
) -> None:
    columns, residents, keys = cluster
    if all_fit([shape], columns=columns):
        return
    found = candidates(shape, columns=columns, residents=residents, now=0.0)
    good = [each for each in found if holds(shape, candidate=each, columns=columns, residents=residents)]
    exact = least_cost(shape, columns=columns, residents=residents, keys=keys)
    assert [each.cost for each in found] == sorted(each.cost for each in found)
    if exact is None:
        assert not good
        return
    assert all(each.cost >= exact - 1e-6 for each in good)
    singles = [least_cost(shape, columns=columns, residents=residents, keys=[key]) for key in keys]
    fitting_now = [
        cost
        for key, cost in zip(keys, singles, strict=True)
        if cost is not None and all_fit([residents.parts(key)[0].shape], columns=columns)
    ]
    if fitting_now:
        assert min(each.cost for each in good) <= min(fitting_now)


@given(clusters(), st.sampled_from(WANTED))
def test_each_candidate_leaves_room_on_its_node(cluster: tuple[Columns, Residents, list[str]], shape: Shape) -> None:
    columns, residents, _ = cluster
    for each in candidates(shape, columns=columns, residents=residents, now=0.0):
        parts = [residents.parts(key)[0] for key in each.keys]
        for part in parts:
            columns.release(part)
        assert any(choice.node == each.node for choice in places(shape, columns=columns))
        for part in parts:
            columns.place(part)


def test_a_restart_loses_what_was_not_saved() -> None:
    residents = Residents(width=1)
    two = Choice(shape=Shape(cpu_milli=0, memory_mib=0, gpus=1, share_milli=1000), node=0, devices=(0,))
    residents.add("saves", parts=[two], started=0.0, saved_every=600.0)
    residents.add("never", parts=[two, two], started=0.0)
    assert residents.lost_of("saves", now=5000.0) == 600.0 + RESTART_SECONDS
    assert residents.lost_of("saves", now=100.0) == 100.0 + RESTART_SECONDS
    assert residents.lost_of("never", now=5000.0) == 2 * (5000.0 + RESTART_SECONDS)


def test_rows_are_used_again_and_grow() -> None:
    residents = Residents(width=1)
    part = Choice(shape=SHAPES[0], node=3, devices=(0,))
    for number in range(600):
        residents.add(str(number), parts=[part], started=0.0)
    for number in range(599):
        residents.remove(str(number))
    assert len(residents) == 1
    assert residents.on(3) == [row for row in range(len(residents.node)) if residents.node[row] == 3]
    assert [residents.key(row) for row in residents.on(3)] == ["599"]
    assert np.count_nonzero(residents.node >= 0) == 1
