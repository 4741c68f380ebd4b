"""Gangs of whole GPUs, counted again in plain numbers: which nodes a worker may take, and how many workers fit.

The spread over domains is counted as kube-scheduler's plugins PodTopologySpread and InterPodAffinity count it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from random import Random

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.topology import DEFAULT_LEVELS, HOSTNAME, Spread, Topology
from tests.core.engine.builders import add_node, hold_devices
from tests.core.engine.gang.topologies import BLOCK, CLIQUE, RACK, ZONE

LABELS = {ZONE: ("z0", "z1"), BLOCK: ("b0", "b1"), RACK: ("r0", "r1"), CLIQUE: ("c0", "c1")}
SPREADS = (
    Spread(label=ZONE, max_skew=1),
    Spread(label=ZONE, max_skew=1, min_domains=3),
    Spread(label=RACK, max_skew=2, min_domains=2),
    Spread(label=RACK, most=1),
    Spread(label=CLIQUE, most=2),
    Spread(label=RACK, most=2, max_skew=1),
)
Place = tuple[str, ...]


@dataclass
class Cluster:
    """Nodes with some of the labels, of whose GPUs some are taken."""

    random: Random
    ledger: Ledger = field(default_factory=Ledger)
    # Those of nodes that are gone stay.
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._labeled = self.random.choice([0.5, 0.9])
        for number in range(self.random.randint(2, 9)):
            self._add(f"n{number}")

    def _add(self, node: str) -> None:
        random = self.random
        self.labels[node] = {
            label: random.choice(values) for label, values in LABELS.items() if random.random() < self._labeled
        }
        self.labels[node][HOSTNAME] = node
        self.gpus[node] = random.randint(1, 5)
        self.free[node] = random.randint(0, self.gpus[node])
        add_node(self.ledger, node, gpus=self.gpus[node], labels=self.labels[node])
        hold_devices(self.ledger, node, *range(self.gpus[node] - self.free[node]), key=f"others-{node}")

    def take(self, node: str, *, each: int, key: str) -> None:
        """A worker takes so many GPUs of the node."""
        first = self.gpus[node] - self.free[node]
        hold_devices(self.ledger, node, *range(first, first + each), key=key)
        self.free[node] -= each

    def drop(self, node: str) -> None:
        """The node is gone. What is promised on it stays, and so does its place until the operator restarts."""
        self.free.pop(node)
        self.gpus.pop(node)
        self.ledger.drop_node(node)

    def restart(self) -> None:
        """A new operator, which has never seen the nodes that are gone."""
        claims, self.ledger = self.ledger.claims(), Ledger()
        self.labels = {node: labels for node, labels in self.labels.items() if node in self.gpus}
        for node, gpus in self.gpus.items():
            add_node(self.ledger, node, gpus=gpus, labels=self.labels[node])
        self.ledger.commit_all(claims)

    def place_of(self, node: str, *, level: str, topology: Topology) -> Place | None:
        """The domain of a level in which the node is; None for none."""
        found = tuple(self.labels.get(node, {}).get(label, "") for label in topology.path(level))
        return found if found[-1] else None


def draw_topology(random: Random, *, spreads: bool) -> Topology:
    """Rules of a gang."""
    levels = [level.name for level in DEFAULT_LEVELS]
    required = random.choice(["", "", "zone", "block", "rack"])
    narrower = levels[levels.index(required) + 1 :] if required else levels
    size = random.choice([0, 0, 2, 3])
    return Topology(
        levels=DEFAULT_LEVELS,
        required=required,
        preferred=random.choice(["", *narrower]),
        group_size=size,
        group_level=random.choice(narrower) if size else "",
        spreads=tuple(random.sample(SPREADS, random.randint(1, 2))) if spreads else (),
    )


# --- one worker --------------------------------------------------------------------------------------------------


def allowed(
    cluster: Cluster, *, each: int, worker: int, placed: Mapping[int, str], topology: Topology, apart: bool
) -> set[str]:
    """The nodes that a worker of `each` GPUs may take while the others are `placed`."""
    nodes = {node for node, free in cluster.free.items() if free >= each}
    if apart:
        nodes -= set(placed.values())
    if topology.required:
        nodes &= together(cluster, placed.values(), level=topology.required, topology=topology)
    if size := topology.group_size:
        group = [node for other, node in placed.items() if other // size == worker // size]
        nodes &= together(cluster, group, level=topology.group_level, topology=topology)
    counted = [node for node, gpus in cluster.gpus.items() if gpus >= each]
    return {
        node
        for node in nodes
        if all(_spreads(cluster, node, spread=each, placed=placed, counted=counted) for each in topology.spreads)
    }


def together(cluster: Cluster, placed: Iterable[str], *, level: str, topology: Topology) -> set[str]:
    """The nodes in the domain of those placed; of which no domain is known, all that are in one."""
    places = {node: cluster.place_of(node, level=level, topology=topology) for node in cluster.labels}
    known = next((place for node in placed if (place := places.get(node)) is not None), None)
    return {node for node in cluster.gpus if (place := places[node]) is not None and known in {None, place}}


def _spreads(cluster: Cluster, node: str, *, spread: Spread, placed: Mapping[int, str], counted: Sequence[str]) -> bool:
    domains = {cluster.labels[each][spread.label] for each in counted if spread.label in cluster.labels[each]}
    workers = Counter(cluster.labels[each].get(spread.label) for each in placed.values() if each in counted)
    own = cluster.labels[node].get(spread.label)
    if spread.most and own is not None and workers[own] >= spread.most:
        return False
    if not spread.max_skew:
        return True
    fewest = min(workers[each] for each in domains) if len(domains) >= spread.min_domains and domains else 0
    return own is not None and workers[own] + 1 - fewest <= spread.max_skew


def grown(
    cluster: Cluster, *, nodes: Collection[str], workers: int, each: int, topology: Topology, apart: bool
) -> dict[int, str]:
    """A gang on these nodes whose rules hold at each worker, until one has no node. Nothing is taken."""
    inside, placed = copy(cluster), dict[int, str]()
    inside.free, inside.gpus = (
        {node: count for node, count in counts.items() if node in nodes} for counts in (cluster.free, cluster.gpus)
    )
    for worker in range(workers):
        found = allowed(inside, each=each, worker=worker, placed=placed, topology=topology, apart=apart)
        if not found:
            break
        placed[worker] = cluster.random.choice(sorted(found))
        inside.free[placed[worker]] -= each
    return placed


# --- a whole gang ------------------------------------------------------------------------------------------------


def capacities(cluster: Cluster, *, each: int, level: str, topology: Topology, apart: bool) -> Counter[Place]:
    """How many workers of `each` GPUs a domain of the level takes, in whole groups; of no level, all nodes are one."""
    seats = {node: min(free // each, 1 if apart else free) for node, free in cluster.free.items()}
    found: Counter[Place] = Counter()
    for nodes in _in_groups(cluster, topology=topology):
        inside: Counter[Place] = Counter()
        for node in nodes:
            place = cluster.place_of(node, level=level, topology=topology) if level else ()
            if place is not None:
                inside[place] += seats[node]
        for place, count in inside.items():
            found[place] += count // max(1, topology.group_size) * max(1, topology.group_size)
    return found


def _in_groups(cluster: Cluster, *, topology: Topology) -> Iterator[list[str]]:
    """The nodes by the domains of the groups; without groups each node by itself."""
    if not topology.group_size:
        yield from ([node] for node in cluster.gpus)
        return
    by_place: dict[Place, list[str]] = {}
    for node in cluster.gpus:
        place = cluster.place_of(node, level=topology.group_level, topology=topology)
        if place is not None:
            by_place.setdefault(place, []).append(node)
    yield from by_place.values()
