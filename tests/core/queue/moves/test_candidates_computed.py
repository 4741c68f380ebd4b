"""Each set of jobs to move, looked at by itself: what it costs, where the pod goes, and that none of it is spare.

Jobs have several parts, come and go, and save their work; nodes have models, and what a host has is scarce.
"""

from random import Random

import numpy as np
import pytest

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.queue.moves.candidates import Candidate, candidates
from dovetail.queue.moves.residents import RESTART_SECONDS, Residents
from tests.core.queue.moves.test_candidates import places
from tests.seeds import seeds

NOW = 5000.0
CPU, MEMORY = [8000, 12_000, 6000, 9000], [8192, 16_384, 8192, 4096]


class Cluster:
    """Four nodes of two models with jobs of one to three parts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.columns = Columns(
            cpu_milli=CPU, memory_mib=MEMORY, gpus=[2, 3, 1, 2], models=["V100", "A100", "V100", "A100"]
        )
        self.residents = Residents(width=self.columns.left.shape[1])
        self.jobs: dict[str, tuple[list[Choice], float, float]] = {}
        for number in range(14):
            self.begin(f"job-{number}")
            if self.jobs and self.random.random() < 0.3:
                self.end(self.random.choice(sorted(self.jobs)))

    def shape(self) -> Shape:
        gpus, share = self.random.choice([(1, 300), (1, 500), (1, 1000), (2, 1000), (0, 0)])
        models = self.random.choice([(), (), ("V100",), ("A100",)]) if gpus else ()
        cpu, memory = self.random.choice([1000, 3000, 5000]), self.random.choice([512, 2048, 5000])
        return Shape(cpu_milli=cpu, memory_mib=memory, gpus=gpus, share_milli=share, models=models)

    def places(self, shape: Shape) -> list[Choice]:
        allowed = self.columns.allowed(shape)
        return [each for each in places(shape, columns=self.columns) if allowed[each.node]]

    def begin(self, key: str) -> None:
        shape, parts = self.shape(), list[Choice]()
        for _ in range(self.random.choice([1, 1, 2, 3])):
            if able := self.places(shape):
                parts.append(self.random.choice(able))
                self.columns.place(parts[-1])
        if parts and self.random.random() < 0.8:
            started, saved = self.random.choice([0.0, 4000.0, 6000.0]), self.random.choice([60.0, float("inf")])
            self.residents.add(key, parts=parts, started=started, saved_every=saved)
            self.jobs[key] = parts, started, saved

    def end(self, key: str) -> None:
        for part in self.jobs.pop(key)[0]:
            self.columns.release(part)
        self.residents.remove(key)

    def lost(self, key: str) -> float:
        """The device-seconds that a restart of a job loses."""
        parts, started, saved = self.jobs[key]
        milli = sum(part.shape.gpus * part.shape.share_milli for part in parts)
        return (min(max(NOW - started, 0.0), saved) + RESTART_SECONDS) * milli / 1000

    def fits_without(self, parts: list[Choice], *, shape: Shape, node: int) -> bool:
        for part in parts:
            self.columns.release(part)
        found = any(each.node == node for each in self.places(shape))
        for part in parts:
            self.columns.place(part)
        return found


def there(cluster: Cluster, key: str, *, node: int) -> list[Choice]:
    return [part for part in cluster.jobs[key][0] if part.node == node]


@seeds(80)
def test_each_set_makes_room_on_an_allowed_node_costs_what_its_jobs_lose_and_has_no_job_too_many(seed: int) -> None:
    cluster = Cluster(seed)
    random, shape = cluster.random, cluster.shape()
    allowed = np.array([random.random() < 0.8 for _ in CPU])
    while any(allowed[each.node] for each in cluster.places(shape)):
        shape, allowed = cluster.shape(), np.array([random.random() < 0.8 for _ in CPU])
    move_seconds, most_cost = random.choice([0.0, 40.0]), random.choice([float("inf"), 3000.0])
    found = candidates(
        shape, columns=cluster.columns, residents=cluster.residents, now=NOW, move_seconds=move_seconds,
        most_cost=most_cost, allowed=allowed,
    )  # fmt: skip
    assert found == sorted(found)
    assert len({(each.node, each.keys) for each in found}) == len(found)
    for each in found:
        look_at(each, cluster=cluster, shape=shape, move_seconds=move_seconds)
        assert each.cost <= most_cost
        assert allowed[each.node]
    known = {(each.node, each.keys) for each in found}
    for key, (parts, *_) in cluster.jobs.items():
        for part in parts:
            is_enough = cluster.fits_without([part], shape=shape, node=part.node) and bool(cluster.places(part.shape))
            if is_enough and allowed[part.node] and cluster.lost(key) + move_seconds <= most_cost:
                assert (part.node, (key,)) in known


def look_at(each: Candidate, *, cluster: Cluster, shape: Shape, move_seconds: float) -> None:
    parts = [part for key in each.keys for part in there(cluster, key, node=each.node)]
    assert cluster.fits_without(parts, shape=shape, node=each.node)
    assert each.cost == pytest.approx(sum(cluster.lost(key) + move_seconds for key in each.keys))
    for key in each.keys:
        assert any(cluster.places(part.shape) for part in there(cluster, key, node=each.node)), "it fits elsewhere"
    if len(each.keys) > 1:
        for key in each.keys:
            others = [part for other in each.keys if other != key for part in there(cluster, other, node=each.node)]
            assert not cluster.fits_without(others, shape=shape, node=each.node), "it need not move"


@pytest.mark.parametrize("seed", range(10))
def test_the_columns_of_residents_are_those_of_the_jobs_that_are_there(seed: int) -> None:
    cluster = Cluster(seed)
    residents = cluster.residents
    assert len(residents) == len(cluster.jobs)
    rows = [row for node in range(len(CPU)) for row in residents.on(node)]
    assert len(rows) == sum(len(parts) for parts, *_ in cluster.jobs.values())
    lost = residents.lost_seconds(now=NOW)
    for node in range(len(CPU)):
        expected = sorted(
            (key, part.devices, part.shape) for key in cluster.jobs for part in there(cluster, key, node=node)
        )
        held = [
            (
                residents.key(row),
                tuple(np.flatnonzero(residents.devices[row]).tolist()),
                residents.shapes[residents.shape[row]],
            )
            for row in residents.on(node)
        ]
        assert sorted(held) == expected
        for row in residents.on(node):
            assert lost[row] == pytest.approx(cluster.lost(residents.key(row)))
    for key, (parts, started, _) in cluster.jobs.items():
        assert residents.parts(key) == tuple(parts)
        assert residents.age_of(key, now=NOW) == max(0.0, NOW - started)
