"""The map of a cluster of another scheduler beside sums over plain lists of its nodes and pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from dovetail.answers.observe import NodeMap, Observation
from dovetail.api.builtin import Node
from dovetail.cluster.observed import PlacedPod, Seen
from dovetail.query.explain.observe.adoption import adoption
from tests.core.query.explain.observe.builders import GPU, look, make_node, make_pod
from tests.seeds import seeds

MIG: Final = "nvidia.com/mig-1g.10gb"
# Counts no devices: neither a row nor a sum.
PART: Final = "volcano.sh/vgpu-memory"
SIZES: Final = (4, 8, 16)


@dataclass
class Server:
    """A node in plain numbers: what it has by resource, its CPUs, and its memory in GiB."""

    has: dict[str, int]
    cpus: int
    gib: int
    cordoned: bool

    def node(self, name: str) -> Node:
        more = {resource: str(count) for resource, count in self.has.items()}
        return make_node(name, gpus=None, cpu=str(self.cpus), memory=f"{self.gib}Gi", cordoned=self.cordoned, **more)


@dataclass
class Asking:
    """A pod in plain numbers: its devices by resource, CPUs and GiB, and its node; empty for one that waits."""

    asks: dict[str, int]
    cpus: int
    gib: int
    on: str

    def pod(self, name: str) -> PlacedPod:
        limits = {resource: str(count) for resource, count in self.asks.items()}
        return make_pod(name, gpus=None, on=self.on, cpu=str(self.cpus), memory=f"{self.gib}Gi", limits=limits)


class Cluster:
    """Some nodes and pods, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.servers = {
            f"n{at}": Server(
                has={each: random.choice([0, 2, 4, 8]) for each in (GPU, MIG, PART) if random.random() < 0.7},
                cpus=random.choice(SIZES),
                gib=random.choice(SIZES),
                cordoned=random.random() < 0.15,
            )
            for at in range(random.randint(1, 5))
        }
        self.asking = [
            Asking(
                asks={each: random.randint(1, 3) for each in (GPU, MIG) if random.random() < 0.6} or {GPU: 1},
                cpus=random.choice([1, 2, 5]),
                gib=random.choice([2, 4]),
                on=random.choice(["", *self.servers]),
            )
            for _ in range(random.randint(0, 8))
        ]
        self.nodes: Sequence[Node] = [each.node(name) for name, each in self.servers.items()]
        self.pods: Sequence[PlacedPod] = [each.pod(f"p{at}") for at, each in enumerate(self.asking)]

    def promised(self, node: str, *, resource: str) -> int:
        return sum(each.asks.get(resource, 0) for each in self.asking if each.on == node)

    def rows(self) -> set[tuple[str, str]]:
        """The nodes and resources of which there is something, or something is promised."""
        return {
            (name, resource)
            for name, server in self.servers.items()
            for resource, count in server.has.items()
            if resource != PART and (count or self.promised(name, resource=resource))
        }

    def is_stranded(self, node: str, *, resource: str) -> bool:
        """Whether some are free, and none of the cluster's pods with such devices would find CPUs and memory there."""
        server = self.servers[node]
        if server.has[resource] <= self.promised(node, resource=resource):
            return False
        there = [each for each in self.asking if each.on == node]
        alike = [each for each in self.asking if resource in each.asks]
        cpus, gib = server.cpus - sum(each.cpus for each in there), server.gib - sum(each.gib for each in there)
        is_short = bool(alike) and (min(each.cpus for each in alike) > cpus or min(each.gib for each in alike) > gib)
        return server.cordoned or is_short


@seeds(40)
def test_rows_and_sums_are_those_of_the_nodes_and_pods(seed: int) -> None:
    cluster = Cluster(seed)
    found = look(nodes=cluster.nodes, pods=cluster.pods)
    assert {(row.node, row.resource) for row in found.nodes} == cluster.rows()
    for row in found.nodes:
        _check(row, cluster=cluster)
    _check_sums(found, cluster=cluster)


def _check(row: NodeMap, *, cluster: Cluster) -> None:
    total, promised = cluster.servers[row.node].has[row.resource], cluster.promised(row.node, resource=row.resource)
    assert (row.devices, row.promised, row.free) == (total, promised, max(0, total - promised))
    assert bool(row.stranded) == cluster.is_stranded(row.node, resource=row.resource), row
    holds = {f"p{at}": each.asks[row.resource] for at, each in enumerate(cluster.asking)
             if each.on == row.node and row.resource in each.asks}  # fmt: skip
    assert {each.name: each.devices for each in row.holders} == holds


def _check_sums(found: Observation, *, cluster: Cluster) -> None:
    for total in found.resources:
        rows = [row for row in found.nodes if row.resource == total.resource]
        assert (total.devices, total.promised) == (
            sum(row.devices for row in rows),
            sum(row.promised or 0 for row in rows),
        )
        assert total.stranded == sum(row.free or 0 for row in rows if row.stranded)
        assert total.asked == _asked(cluster, resource=total.resource)


def _asked(cluster: Cluster, *, resource: str) -> int:
    return sum(each.asks.get(resource, 0) for each in cluster.asking if not each.on)


@seeds(20)
def test_who_moves_a_node_reads_what_waits_for_its_devices(seed: int) -> None:
    cluster = Cluster(seed)
    for name, server in cluster.servers.items():
        if server.has.get(GPU):
            found = adoption(Seen(nodes=cluster.nodes, pods=cluster.pods), node=name)
            assert (found.resource, found.asked_elsewhere) == (GPU, _asked(cluster, resource=GPU))
