"""SPREAD, PACK and BALANCED over sequences of pods on nodes that are alike: same devices, CPU and load."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.gpujob import Policy
from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.gpu.request import WHOLE_MILLI
from tests.core.engine.builders import add_node, make_ask, make_device

SHARES = ("0.1", "0.25", "0.3", "0.5", "0.7")
WHOLE = ("1", "2", "4", "8")


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Pods for a cluster of `nodes` nodes with `gpus` devices each; `requests` in their order."""

    nodes: int
    gpus: int
    requests: tuple[str, ...]
    cpu_milli: int = 0

    def asks(self, policy: Policy) -> list[Ask]:
        return [make_ask(text, policy=policy, cpu_milli=self.cpu_milli) for text in self.requests]


@dataclass(kw_only=True)
class Cluster:
    """Places pods as the extender does, and adds up what each node holds, in milli of a GPU."""

    arrivals: Arrivals
    ledger: Ledger = field(default_factory=Ledger)
    held: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(self.arrivals.nodes):
            add_node(self.ledger, f"n{number}", gpus=self.arrivals.gpus)
            self.held[f"n{number}"] = 0
        self.term = LiveFragmentation(self.ledger, settings=FragmentationSettings(policy="ph"))
        self.fit_cache = FitCache(self.ledger, term=self.term)

    def run(self, policy: Policy) -> Iterator[tuple[Ask, str]]:
        """Each pod that fits and its node, before the pod takes it."""
        for number, ask in enumerate(self.arrivals.asks(policy)):
            key = f"pod-{number}"
            self.term.arrived(ask, key=key)
            for node in self.fit_cache.best(ask, nodes=list(self.held), key=key, limit=1):
                yield ask, node
                found = self.fit_cache.check(ask, node=node, key=key)
                assert isinstance(found, Fit)
                self.ledger.commit(found.claim)
                self.held[node] += size_of(ask)

    def fitting(self, ask: Ask) -> list[str]:
        return self.fit_cache.best(ask, nodes=list(self.held), key="")

    @property
    def used(self) -> int:
        return sum(milli > 0 for milli in self.held.values())

    @property
    def largest_share(self) -> float:
        return max(self.held.values()) / (WHOLE_MILLI * self.arrivals.gpus)


def size_of(ask: Ask) -> int:
    assert ask.gpu is not None
    return ask.gpu.count * ask.gpu.share_milli


def placed(arrivals: Arrivals, policy: Policy) -> Cluster:
    cluster = Cluster(arrivals=arrivals)
    for _ in cluster.run(policy):
        pass
    return cluster


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    gpus = draw(st.sampled_from([1, 2, 4, 8]))
    kinds = draw(
        st.lists(st.sampled_from([*SHARES, *(each for each in WHOLE if int(each) <= gpus)]), min_size=1, max_size=3)
    )
    nodes = draw(st.integers(2, 6))
    requests = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3 * nodes))
    return Arrivals(nodes=nodes, gpus=gpus, requests=tuple(requests), cpu_milli=draw(st.sampled_from([0, 1000, 4000])))


@settings(max_examples=60)
@given(arrivals())
def test_spread_uses_an_idle_node_as_long_as_there_is_one(drawn: Arrivals) -> None:
    cluster = Cluster(arrivals=drawn)
    for ask, node in cluster.run("Spread"):
        idle = [name for name in cluster.fitting(ask) if not cluster.held[name]]
        assert not idle or node in idle


@settings(max_examples=60)
@given(arrivals())
def test_under_spread_the_fullest_node_never_leads_by_more_than_one_pod(drawn: Arrivals) -> None:
    cluster, largest = Cluster(arrivals=replace(drawn, cpu_milli=0)), 0
    for ask, node in cluster.run("Spread"):
        largest = max(largest, size_of(ask))
        # A node that the pod does not fit on, for its free devices are broken, is no alternative.
        emptiest = min(cluster.held[name] for name in cluster.fitting(ask))
        assert cluster.held[node] + size_of(ask) - emptiest <= largest


@settings(max_examples=60)
@given(arrivals())
def test_pack_opens_no_node_while_an_open_one_costs_no_more(drawn: Arrivals) -> None:
    cluster = Cluster(arrivals=drawn)
    for ask, node in cluster.run("Pack"):
        if not cluster.held[node]:
            fitting = cluster.fitting(ask)
            value = dict(zip(fitting, cluster.fit_cache.values(ask, nodes=fitting).tolist(), strict=True))
            assert not [name for name in fitting if cluster.held[name] and value[name] >= value[node]]


@settings(max_examples=60)
@given(arrivals())
def test_balanced_uses_at_least_the_nodes_of_pack_and_at_most_those_of_spread(drawn: Arrivals) -> None:
    pack, balanced, spread = (placed(drawn, policy) for policy in ("Pack", "Balanced", "Spread"))
    assert balanced.held == pack.held, "nothing is measured beyond the promises"
    assert balanced.used <= spread.used
    assert balanced.largest_share >= spread.largest_share


@pytest.mark.parametrize(
    ("requests", "pack", "balanced", "spread"),
    [
        (("0.25",) * 6, 1, 1, 4),
        (("0.25",) * 8, 1, 1, 4),
        (("1",) * 6, 1, 1, 4),
        (("0.25",) * 50, 2, 2, 4),
    ],
)
def test_nodes_used_on_four_idle_nodes(requests: Sequence[str], pack: int, balanced: int, spread: int) -> None:
    four = Arrivals(nodes=4, gpus=8, requests=tuple(requests), cpu_milli=1000)
    assert [placed(four, policy).used for policy in ("Pack", "Balanced", "Spread")] == [pack, balanced, spread]


@pytest.mark.parametrize(("excess", "moves"), [(0.02, False), (0.04, True)])
def test_balanced_leaves_the_node_of_pack_for_load_beyond_a_quarter_of_the_pods_share(
    excess: float, *, moves: bool
) -> None:
    """0.4 of the load outweighs 0.1 of the pod's share: one of eight GPUs, 0.125, gives way to 0.03125."""
    cluster = Cluster(arrivals=Arrivals(nodes=2, gpus=8, requests=("1", "1")))
    nodes = []
    for _, node in cluster.run("Balanced"):
        nodes.append(node)
        free = make_device(node, 7, utilization=min(1.0, excess * 8))
        cluster.ledger.set_devices(node, devices=[*(make_device(node, index) for index in range(7)), free])
    assert (nodes[0] != nodes[1]) is moves
