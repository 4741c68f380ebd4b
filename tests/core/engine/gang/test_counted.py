"""Plans and replacements of gangs beside a count in plain numbers: a gang has room exactly where there is some."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from dovetail.api.gpujob import Workload
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.replacement import replace_lost
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.topology import DEFAULT_LEVELS, Topology
from dovetail.engine.score.fit_cache import FitCache
from tests.core.engine.builders import hold_devices, make_ask
from tests.core.engine.gang.counted import Cluster, Place, allowed, capacities, draw_topology, grown, together
from tests.core.engine.gang.rules import assert_kept, assert_not_beyond
from tests.seeds import seeds


def asked(each: int, *, topology: Topology, apart: bool) -> Ask:
    return replace(make_ask(str(each)), topology=topology, apart=apart)


@seeds(400)
def test_a_lost_worker_gets_a_node_wherever_one_is_allowed_to_it(seed: int) -> None:
    """Of two that are lost, the second one is placed where the first one has its new node already."""
    random = Random(seed)
    cluster = Cluster(random)
    topology, each = draw_topology(random, spreads=random.random() < 0.7), random.choice([1, 1, 2])
    apart = random.random() < 0.15
    others = grown(cluster, nodes=cluster.gpus, workers=random.randint(1, 5), each=each, topology=topology, apart=apart)
    if not others:
        return
    lost = sorted(random.sample(sorted(others), min(len(others), random.choice([1, 1, 2]))))
    gone = {others.pop(worker) for worker in lost}
    for worker, node in others.items():
        cluster.take(node, each=each, key=f"x/{worker}")
    # The Node of a pod that goes on may be deleted too.
    for node in gone | {node for node in others.values() if random.random() < 0.3}:
        cluster.drop(node)
    if random.random() < 0.5:
        cluster.restart()
    before = cluster.ledger.content()
    found = replace_lost(
        cluster.ledger, ask=asked(each, topology=topology, apart=apart), lost=lost, others=others, key="x",
        nodes=cluster.ledger.nodes(), fit_cache=FitCache(cluster.ledger),
    )  # fmt: skip
    assert cluster.ledger.content() == before
    if found is None:
        # Which node the first of several got is not known.
        nodes = allowed(cluster, each=each, worker=lost[0], placed=others, topology=topology, apart=apart)
        assert len(lost) > 1 or not nodes, f"{topology} with {others}: {sorted(nodes)} are allowed"
        return
    assert_not_beyond(list(found.values()), ledger=cluster.ledger)
    for worker in lost:
        node = found[worker].node
        nodes = allowed(cluster, each=each, worker=worker, placed=others, topology=topology, apart=apart)
        assert node in nodes, f"{topology} with {others}: {worker} on {node}, and {sorted(nodes)} are allowed"
        assert node in (_preferred(cluster, nodes, placed=others, topology=topology) or nodes)
        cluster.take(node, each=each, key=f"x/{worker}")
        others[worker] = node


def _preferred(cluster: Cluster, nodes: set[str], *, placed: Mapping[int, str], topology: Topology) -> set[str]:
    if not topology.preferred:
        return set()
    return nodes & together(cluster, placed.values(), level=topology.preferred, topology=topology)


@seeds(200)
def test_a_gang_that_is_spread_starts_exactly_where_a_domain_takes_all_of_it(seed: int) -> None:
    """By one rule alone, the order in which its workers are placed does not matter."""
    random = Random(seed)
    cluster = Cluster(random)
    topology = draw_topology(random, spreads=True)
    topology = replace(topology, preferred="", group_size=0, group_level="", spreads=topology.spreads[:1])
    rules = {"each": random.choice([1, 1, 2]), "topology": topology, "apart": random.random() < 0.15}
    workers = random.randint(2, 6)
    found = place(cluster.ledger, ask=asked(**rules), workers=workers, key="x")
    domains: dict[object, list[str]] = {}
    for node in cluster.gpus:
        place_of = cluster.place_of(node, level=topology.required, topology=topology) if topology.required else ()
        if place_of is not None:
            domains.setdefault(place_of, []).append(node)
    most = max((len(grown(cluster, nodes=nodes, workers=workers, **rules)) for nodes in domains.values()), default=0)
    assert isinstance(found, Shortage) == (most < workers), f"{rules}: {found}, and a domain takes {most} of {workers}"
    if not isinstance(found, Shortage):
        assert_kept(found, topology=replace(topology, spreads=()), ledger=cluster.ledger)


@seeds(150)
def test_a_gang_of_whole_gpus_starts_exactly_where_its_domains_have_the_room(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(random)
    topology, each, apart = draw_topology(random, spreads=False), random.choice([1, 1, 2]), random.random() < 0.15
    size = topology.group_size or 1
    workers = size * random.randint(1, 8 // size)
    least = random.choice([None, *range(1, workers + 1)])
    found = place(
        cluster.ledger, ask=asked(each, topology=topology, apart=apart), workers=workers, key="x", least=least
    )
    room = capacities(cluster, each=each, level=topology.required, topology=topology, apart=apart)
    most = max(room.values(), default=0)
    if most < (least or workers):
        assert isinstance(found, Shortage), f"{topology} takes {most}"
        return
    assert not isinstance(found, Shortage), f"{topology} takes {most}: {found}"
    assert len(found) == min(workers, most)
    assert_kept(found, topology=topology, ledger=cluster.ledger)
    assert_not_beyond(found, ledger=cluster.ledger)
    assert len({claim.node for claim in found}) == len(found) or not apart
    if topology.preferred and len(found) == workers:
        _check_preferred(cluster, found, each=each, topology=topology, apart=apart)


def _check_preferred(cluster: Cluster, claims: Sequence[Claim], *, each: int, topology: Topology, apart: bool) -> None:
    """Where one domain of the preferred level takes all workers, one has them."""
    room = capacities(cluster, each=each, level=topology.preferred, topology=topology, apart=apart)
    if max(room.values(), default=0) >= len(claims):
        places = {cluster.place_of(each.node, level=topology.preferred, topology=topology) for each in claims}
        assert len(places) == 1


@seeds(200)
def test_an_elastic_gang_that_is_spread_starts_in_whole_groups(seed: int) -> None:
    """How many of its workers fit shows only while they are placed."""
    random = Random(seed)
    cluster = Cluster(random)
    topology = replace(
        draw_topology(random, spreads=True), group_size=random.choice([2, 3]), group_level="host", preferred=""
    )
    ask = replace(make_ask(random.choice(["1", "0.5", "0.3"])), topology=topology)
    size = topology.group_size
    least = random.randint(1, 2 * size)
    found = place(cluster.ledger, ask=ask, workers=3 * size, key="x", least=least)
    if not isinstance(found, Shortage):
        assert least <= len(found) <= 3 * size
        assert_kept(found, topology=topology, ledger=cluster.ledger)
        assert_not_beyond(found, ledger=cluster.ledger)


@seeds(80)
def test_a_gang_of_parts_starts_exactly_where_a_domain_takes_its_workers_one_by_one(seed: int) -> None:
    """On devices with tenants of both workloads, whose limits differ."""
    random = Random(seed)
    cluster = Cluster(random)
    cluster.ledger.set_tenant_limits(
        training_per_device=random.randint(1, 3), inference_per_device=random.randint(1, 8)
    )
    workload: Workload = random.choice(["Training", "Inference"])
    part = random.choice(["0.2", "0.1", "0.3"])
    _add_tenants(cluster)
    level = random.choice(["zone", "rack", "host"])
    topology = Topology(levels=DEFAULT_LEVELS, required=level)
    ask = replace(make_ask(part, workload=workload), topology=topology)
    workers = random.randint(2, 12)
    found = place(cluster.ledger, ask=ask, workers=workers, key="x")
    domains: dict[Place, list[str]] = {}
    for node in cluster.gpus:
        if (at := cluster.place_of(node, level=level, topology=topology)) is not None:
            domains.setdefault(at, []).append(node)
    most = max((_taken_one_by_one(cluster, ask=ask, nodes=nodes) for nodes in domains.values()), default=0)
    assert isinstance(found, Shortage) == (most < workers), f"{found}: a domain takes {most} of {workers}"


def _add_tenants(cluster: Cluster) -> None:
    """On devices that nothing holds yet, tenants of either workload."""
    random = cluster.random
    for node, free in cluster.free.items():
        for index in range(cluster.gpus[node] - free, cluster.gpus[node]):
            for number in range(random.randint(0, 3)):
                kind: Workload = random.choice(["Training", "Inference"])
                hold_devices(
                    cluster.ledger, node, index, key=f"{node}-{index}-{number}", share_milli=100, mode="Fractional",
                    workload=kind,
                )  # fmt: skip


def _taken_one_by_one(cluster: Cluster, *, ask: Ask, nodes: Sequence[str]) -> int:
    """How many workers go to the nodes, each alone. They are alike, so that the order does not matter."""
    ledger, count = cluster.ledger.copy(), 0
    while not isinstance(found := place(ledger, ask=ask.alone, workers=1, key=f"x{count}", nodes=nodes), Shortage):
        ledger.commit_all(found)
        count += 1
    return count
