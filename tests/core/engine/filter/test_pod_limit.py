"""A node takes so many pods and no more, however small they are."""

import pytest

from dovetail.cluster.view import node_facts
from dovetail.engine.filter.fit import check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.inventory import ANY_NUMBER, NodeFacts
from dovetail.engine.model.refusals import Refusal
from tests.core.builders import make_node
from tests.core.engine.builders import make_ask, make_ledger


@pytest.fixture
def ledger() -> Ledger:
    """Four GPUs, and three pods at most, of which one asks for nothing."""
    ledger = make_ledger(a=4)
    ledger.set_node(NodeFacts(name="a", cpu_milli=64_000, memory_mib=1 << 18, pods=3))
    ledger.commit(Claim(key="other", node="a"))
    return ledger


def test_a_full_node_takes_no_pod(ledger: Ledger) -> None:
    for key in ("first", "second"):
        ledger.commit(Claim(key=key, node="a"))
    refused = check(ledger, ask=make_ask("0.25"), node="a", key="x")
    assert isinstance(refused, Refusal)
    assert (refused.kind, refused.message) == ("CPUOrMemoryShort", "a: it takes 3 pods, and has them")
    ledger.release("first")
    assert not isinstance(check(ledger, ask=make_ask("0.25"), node="a", key="x"), Refusal)


def test_a_gang_is_planned_with_as_many_pods_as_its_nodes_take(ledger: Ledger) -> None:
    assert not isinstance(place(ledger, ask=make_ask("0.25"), workers=2, key="x"), Shortage)
    short = place(ledger, ask=make_ask("0.25"), workers=3, key="x")
    assert isinstance(short, Shortage)
    assert short.reason == "Resources"
    assert short.message == "Need 3 GPUs, only 2 available on a node that takes one more worker"


def test_more_pods_than_all_nodes_ever_take_is_more_than_there_will_be(ledger: Ledger) -> None:
    short = place(ledger, ask=make_ask("0.25"), workers=4, key="x")
    assert isinstance(short, Shortage)
    assert short.reason == "ExceedsCapacity"
    assert "at most 3 of 4 workers with 1 GPU each could ever run together" in short.message


@pytest.mark.parametrize(("allocatable", "pods"), [({"pods": "110"}, 110), ({}, ANY_NUMBER)])
def test_the_node_says_how_many(allocatable: dict[str, str], pods: int) -> None:
    assert node_facts(make_node(status={"allocatable": allocatable})).pods == pods
