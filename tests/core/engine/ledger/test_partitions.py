"""MIG instances in the ledger: a state machine beside plain counts, and cases of nodes that change."""

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dovetail.engine.filter.fit import Fit, check, screen
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu import mig
from dovetail.pods.device_plugin import asks_by_kind
from tests.core.engine.builders import make_ask, make_device

SMALL, LARGE = "1g.10gb", "3g.40gb"
NODES = ("managed", "vendor", "whole")
REQUESTS = ("1", "2", "0.5", SMALL, f"2x{SMALL}", LARGE, f"2x{LARGE}", f"{SMALL}(A100)", "7g.80gb")
# What each node has of GPUs and of each profile.
HAS = {"managed": {"": 2, SMALL: 3, LARGE: 2}, "vendor": {"": 1, SMALL: 4}, "whole": {"": 2}}


def instance(node: str, index: int, *, profile: str, **facts: object) -> DeviceFacts:
    device = make_device(node, index, model="A100", memory_mib=mig.memory_mib(profile), **facts)
    return replace(device, uuid=f"MIG-{node}-{index}", mig=profile)


def devices_of(node: str) -> list[DeviceFacts]:
    kinds = [profile for profile, count in HAS[node].items() for _ in range(count)]
    return [
        instance(node, index, profile=kind) if kind else make_device(node, index, model="A100")
        for index, kind in enumerate(kinds)
    ]


def add(ledger: Ledger, node: str, **facts: object) -> None:
    offered = {profile: count for profile, count in HAS[node].items() if profile}
    by_plugin = {"managed": False, "resource": "nvidia.com/gpu", "offered": HAS[node][""], "instances": offered}
    kind = by_plugin if node == "vendor" else {}
    all_facts: dict[str, object] = {"cpu_milli": 64_000, "memory_mib": 262_144} | kind | facts
    ledger.set_node(NodeFacts(name=node, **all_facts))  # type: ignore[arg-type]
    ledger.set_devices(node, devices=devices_of(node))


def make_partitioned() -> Ledger:
    ledger = Ledger()
    for node in NODES:
        add(ledger, node)
    return ledger


def ways(text: str) -> tuple[Ask, ...]:
    return asks_by_kind(make_ask(text))


def held(claim: Claim, *, profile: str) -> int:
    """How many devices of a kind the claim has, by the names and numbers in it."""
    prefix = "MIG-" if profile else ""
    kinds = {device.uuid: device.mig for node in NODES for device in devices_of(node)}
    named = sum(kinds[device.uuid] == profile and device.uuid.startswith(prefix) for device in claim.devices)
    return named + (dict(claim.instances).get(profile, 0) if profile else claim.unnamed)


class PartitionMachine(RuleBasedStateMachine):
    """GPUs, shares of them and instances, on nodes of both kinds."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = make_partitioned()
        self.cache = FitCache(self.ledger)
        self.asks: dict[str, Ask] = {}
        self.count = 0

    @rule(target=keys, node=st.sampled_from(NODES), text=st.sampled_from(REQUESTS), by_plugin=st.booleans())
    def bind(self, node: str, text: str, by_plugin: bool) -> str:
        self.count += 1
        key, ask = f"pod-{self.count}", ways(text)[-1 if by_plugin else 0]
        found = self.cache.check(ask, node=node, key=key)
        assert found == check(self.ledger, ask=ask, node=node, key=key)
        if isinstance(found, Fit):
            self.ledger.commit(found.claim)
            self.asks[key] = ask
        return key

    @rule(key=consumes(keys))
    def end(self, key: str) -> None:
        self.ledger.release(key)
        self.asks.pop(key, None)

    @rule(node=st.sampled_from(NODES), there=st.booleans())
    def node_comes_or_goes(self, node: str, there: bool) -> None:
        if there:
            add(self.ledger, node)
        else:
            self.ledger.drop_node(node)

    @invariant()
    def no_device_is_promised_twice(self) -> None:
        whole = [device.uuid for claim in self.ledger.claims() if claim.mode == "Exclusive" for device in claim.devices]
        assert len(whole) == len(set(whole))
        for node in NODES:
            for profile in ("", SMALL, LARGE):
                claims = [claim for claim in self.ledger.claims_on(node) if claim.mode == "Exclusive"]
                assert sum(held(claim, profile=profile) for claim in claims) <= HAS[node].get(profile, 0)

    @invariant()
    def who_asks_gpus_has_gpus_and_who_asks_instances_has_instances(self) -> None:
        for key, ask in self.asks.items():
            claim = self.ledger.claim(key)
            assert claim is not None
            assert ask.gpu is not None
            amounts = Counter({profile: held(claim, profile=profile) for profile in ("", SMALL, LARGE)})
            assert +amounts == {ask.profile: ask.gpu.count}

    @invariant()
    def cached_and_copied_answers_are_those_of_a_screen(self) -> None:
        copy = self.ledger.copy()
        for text in REQUESTS:
            for ask in ways(text):
                fits = screen(self.ledger, ask=ask, nodes=NODES, key="").fits
                assert self.cache.best(ask, nodes=NODES, key="") == fits
                assert screen(copy, ask=ask, nodes=NODES, key="").fits == fits


TestPartitions = PartitionMachine.TestCase
TestPartitions.settings = settings(max_examples=20, stateful_step_count=15)


NOWHERE = "Need 1 instance of 7g.80gb, only 0 available: no node has a MIG instance of 7g.80gb"


def shortage(text: str, *, ledger: Ledger | None = None, workers: int = 1, way: int = 0) -> Shortage:
    found = place(ledger or make_partitioned(), ask=ways(text)[way], workers=workers, key="k", nodes=NODES)
    assert isinstance(found, Shortage)
    return found


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        (
            "7g.80gb",
            "ExceedsCapacity",
            f"{NOWHERE}, there is {SMALL}, {LARGE}",
        ),
        (
            f"4x{SMALL}",
            "ExceedsCapacity",
            f"Need 4 instances of {SMALL}, only 3 available on one node: the largest request that could ever fit is 3",
        ),
        (
            f"{SMALL}(H100)",
            "ExceedsCapacity",
            f"Need 1 instance of {SMALL}, only 0 available: no node has model H100, there is A100",
        ),
    ],
)  # fmt: skip
def test_what_no_node_has_is_said_with_the_profiles_that_exist(text: str, reason: str, message: str) -> None:
    found = shortage(text)
    assert (found.reason, found.message) == (reason, message)


def test_a_cluster_without_instances_says_so() -> None:
    ledger = Ledger()
    add(ledger, "whole")
    assert shortage(SMALL, ledger=ledger).message.endswith("there is none of any profile")


def test_busy_instances_are_a_shortage_that_ends() -> None:
    ledger = make_partitioned()
    busy = check(ledger, ask=ways(f"2x{LARGE}")[0], node="managed", key="busy")
    assert isinstance(busy, Fit)
    ledger.commit(busy.claim)
    found = shortage(LARGE, ledger=ledger)
    assert (found.reason, found.message) == ("Resources", f"Need 1 instance of {LARGE}, only 0 available")


def test_instances_that_are_free_on_several_nodes_alone_are_fragmented() -> None:
    ledger = Ledger()
    for node in ("managed", "whole"):
        ledger.set_node(NodeFacts(name=node, cpu_milli=64_000, memory_mib=262_144))
        ledger.set_devices(node, devices=[instance(node, index, profile=LARGE) for index in range(2)])
        one = check(ledger, ask=ways(LARGE)[0], node=node, key=node)
        assert isinstance(one, Fit)
        ledger.commit(one.claim)
    found = shortage(f"2x{LARGE}", ledger=ledger)
    assert found.reason == "Fragmentation"
    assert found.message == (
        f"Need 2 instances of {LARGE}, only 1 available on one node: 2 instances of {LARGE} are free, but not together"
    )


def test_an_unhealthy_instance_is_given_to_no_one() -> None:
    ledger = Ledger()
    ledger.set_node(NodeFacts(name="managed", cpu_milli=64_000, memory_mib=262_144))
    ledger.set_devices("managed", devices=[instance("managed", 0, profile=SMALL, healthy=False)])
    assert shortage(SMALL, ledger=ledger).reason == "NodeUnhealthy"


def test_a_gang_of_instances_is_placed_together() -> None:
    found = place(make_partitioned(), ask=ways(SMALL)[0], workers=3, key="k", nodes=NODES)
    assert not isinstance(found, Shortage)
    assert {claim.node for claim in found} == {"managed"}
    assert len({device.uuid for claim in found for device in claim.devices}) == 3


def test_an_instance_that_kubelet_offers_no_longer_is_not_promised() -> None:
    ledger = make_partitioned()
    add(ledger, "vendor", instances={SMALL: 1})
    (_, by_plugin) = ways(f"2x{SMALL}")
    assert not isinstance(check(ledger, ask=by_plugin, node="vendor", key="k"), Fit)
    assert isinstance(check(ledger, ask=ways(SMALL)[1], node="vendor", key="k"), Fit)


def test_the_answer_follows_a_node_that_is_partitioned_later() -> None:
    ledger = Ledger()
    add(ledger, "whole")
    cache = FitCache(ledger)
    (ask, _) = ways(SMALL)
    assert cache.best(ask, nodes=["whole"], key="") == []
    ledger.set_devices("whole", devices=[instance("whole", 0, profile=SMALL)])
    assert cache.best(ask, nodes=["whole"], key="") == ["whole"]
    ledger.set_devices("whole", devices=[make_device("whole", 0, model="A100")])
    assert cache.best(ask, nodes=["whole"], key="") == []
