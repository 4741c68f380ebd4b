"""The term of warm nodes: how much better another node must be, and what it does not change."""

from dataclasses import replace

import pytest

from dovetail.api.gpujob import Policy
from dovetail.engine.gang.placement import place
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.score import WARM_WEIGHT
from tests.core.engine.builders import hold_devices, make_ask, make_ledger

NODES = ["a", "b"]


def scores(*, policy: Policy, warm: tuple[str, ...]) -> dict[str, float]:
    """The score of each of two idle nodes."""
    ask = replace(make_ask("1", policy=policy), warm=warm)
    return dict(zip(NODES, FitCache(make_ledger(a=2, b=2)).scores(ask, nodes=NODES, key="pod"), strict=True))


@pytest.mark.parametrize("policy", ["Spread", "Balanced", "Pack"])
def test_of_equal_nodes_the_warm_one_is_the_best_by_its_weight(policy: Policy) -> None:
    found = scores(policy=policy, warm=("b",))
    assert found["b"] - found["a"] == pytest.approx(WARM_WEIGHT / (1 + WARM_WEIGHT))
    assert scores(policy=policy, warm=()) == {node: pytest.approx(found["b"]) for node in NODES}


def test_a_node_that_is_better_by_more_than_the_weight_stays_the_best() -> None:
    ledger = make_ledger(a=2, b=2)
    hold_devices(ledger, "b", 0)
    spread = replace(make_ask("0.5", policy="Spread"), warm=("b",))
    # Half of the devices and of their memory is promised: 0.4 / 2 + 0.3 / 2 is more than the weight.
    assert FitCache(ledger).best(spread, nodes=NODES, key="pod", limit=1) == ["a"]
    packed = replace(spread, policy="Pack")
    assert FitCache(ledger).best(packed, nodes=NODES, key="pod", limit=1) == ["b"]


def test_a_warm_node_without_room_changes_nothing() -> None:
    ledger = make_ledger(a=1, b=1)
    hold_devices(ledger, "b", 0)
    found = place(ledger, ask=replace(make_ask("1"), warm=("b", "gone")), workers=1, key="job")
    assert isinstance(found, list)
    assert [claim.node for claim in found] == ["a"]


def test_each_worker_prefers_warm_nodes_while_they_have_room() -> None:
    ledger = make_ledger(a=2, b=2)
    found = place(ledger, ask=replace(make_ask("1", policy="Spread"), warm=("b",)), workers=3, key="job")
    assert isinstance(found, list)
    assert all(isinstance(each, Claim) for each in found)
    assert found[0].node == "b"
    assert sorted(claim.node for claim in found) in (["a", "a", "b"], ["a", "b", "b"])


def test_asks_that_differ_in_warm_nodes_alone_are_one_shape() -> None:
    ask, warm = make_ask("1"), replace(make_ask("1"), warm=("b",))
    assert (ask, hash(ask)) == (warm, hash(warm))
    ledger = make_ledger(a=2, b=2)
    cache = FitCache(ledger)
    for asked, best in ((ask, "a"), (warm, "b"), (ask, "a")):
        assert cache.best(asked, nodes=NODES, key="pod", limit=1) == [best]
