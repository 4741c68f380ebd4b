"""Workers whose node failed get another one, and the rules of their gang still hold."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dovetail.engine.gang.placement import place
from dovetail.engine.gang.replacement import replace_lost
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.topology import Spread
from dovetail.engine.score.fit_cache import FitCache
from tests.core.engine.builders import hold_devices, make_ask, make_ledger
from tests.core.engine.gang.rules import assert_kept, assert_not_beyond
from tests.core.engine.gang.test_topology_properties import clusters, gangs
from tests.core.engine.gang.topologies import RACK, gang, make_racks


def replaced(ledger: Ledger, ask: Ask, *, lost: list[int], others: dict[int, str]) -> dict[int, str] | None:
    """The new node of each lost worker. The ledger must be unchanged."""
    before = ledger.content()
    found = replace_lost(
        ledger, ask=ask, lost=lost, others=others, key="x", nodes=ledger.nodes(), fit_cache=FitCache(ledger)
    )
    assert ledger.content() == before
    return None if found is None else {worker: claim.node for worker, claim in found.items()}


def test_a_worker_is_replaced_in_the_rack_of_its_gang() -> None:
    ledger = make_racks(3, 3)
    hold_devices(ledger, "r1-n1", *range(8))
    ledger.drop_node("r1-n0")
    assert replaced(ledger, gang("8", required="rack"), lost=[1], others={0: "r1-n1"}) == {1: "r1-n2"}


def test_a_worker_that_has_no_room_in_its_rack_is_not_replaced_in_another() -> None:
    ledger = make_racks(2, 2)
    hold_devices(ledger, "r1-n1", *range(8))
    hold_devices(ledger, "r1-n0", *range(8))
    assert replaced(ledger, gang("8", required="rack"), lost=[1], others={0: "r1-n1"}) is None


def test_a_preferred_rack_is_no_condition() -> None:
    ledger = make_racks(1, 1)
    hold_devices(ledger, "r1-n0", *range(8))
    assert replaced(ledger, gang("8", preferred="rack"), lost=[1], others={0: "r1-n0"}) == {1: "r0-n0"}


def test_a_preferred_rack_with_room_is_used() -> None:
    ledger = make_racks(2, 2)
    hold_devices(ledger, "r1-n0", *range(8))
    assert replaced(ledger, gang("8", preferred="rack"), lost=[1], others={0: "r1-n0"}) == {1: "r1-n1"}


def test_a_worker_joins_the_group_that_it_left() -> None:
    ledger = make_racks(2, 2)
    ask = gang("4", group_size=2, group_level="host")
    assert replaced(ledger, ask, lost=[3], others={0: "r0-n0", 1: "r0-n0", 2: "r1-n1"}) == {3: "r1-n1"}


def test_a_group_that_is_lost_as_a_whole_stays_together() -> None:
    ledger = make_ledger(a=2, b=1, c=1)
    hold_devices(ledger, "a", 0, 1)
    assert replaced(ledger, gang("1", group_size=2, group_level="host"), lost=[2, 3], others={0: "a", 1: "a"}) is None


def test_workers_apart_stay_apart() -> None:
    ledger = make_ledger(a=8, b=8)
    ask = replace(make_ask("1"), apart=True)
    assert replaced(ledger, ask, lost=[1], others={0: "a"}) == {1: "b"}
    assert replaced(ledger, ask, lost=[1], others={0: "a", 2: "b"}) is None


def test_a_spread_counts_the_workers_that_go_on() -> None:
    ledger = make_racks(1, 1)
    ask = gang("1", spreads=(Spread(label=RACK, max_skew=1),))
    assert replaced(ledger, ask, lost=[1], others={0: "r0-n0"}) == {1: "r1-n0"}


@pytest.mark.parametrize("free", [0, 1])
def test_several_lost_workers_are_all_replaced_or_none(free: int) -> None:
    ledger = make_ledger(a=1, b=1 + free)
    hold_devices(ledger, "a", 0)
    found = replaced(ledger, make_ask("1"), lost=[1, 2], others={0: "a"})
    assert found == ({1: "b", 2: "b"} if free else None)


@given(ledger=clusters(), ask=gangs(), groups=st.integers(1, 3), data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_rules_of_the_gang_hold_after_every_replacement(
    ledger: Ledger, ask: Ask, groups: int, data: st.DataObject
) -> None:
    assert ask.topology is not None
    plan = place(ledger, ask=ask, workers=2 * groups, key="x")
    if isinstance(plan, Shortage):
        return
    gone = data.draw(st.sampled_from(sorted({claim.node for claim in plan})))
    lost = [worker for worker, claim in enumerate(plan) if claim.node == gone]
    others = {worker: claim for worker, claim in enumerate(plan) if claim.node != gone}
    ledger.commit_all(others.values())
    ledger.drop_node(gone)
    found = replace_lost(
        ledger,
        ask=ask,
        lost=lost,
        others={worker: claim.node for worker, claim in others.items()},
        key="x",
        nodes=ledger.nodes(),
        fit_cache=FitCache(ledger),
    )
    if found is not None:
        assert sorted(found) == lost
        whole: list[Claim] = [({**others, **found})[worker] for worker in range(len(plan))]
        assert_kept(whole, topology=ask.topology, ledger=ledger)
        assert_not_beyond(list(found.values()), ledger=ledger)
        if ask.apart:
            assert len({claim.node for claim in whole}) == len(whole)
