"""In every plan the rules of the gang hold, and no plan promises more than the ledger has."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given, settings

from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.topology import DEFAULT_LEVELS, Spread, Topology
from dovetail.engine.score.live_fragmentation import price_by
from dovetail.queue.backfill.reservation import reserve
from dovetail.queue.model.candidates import Candidate, Leaving
from tests.core.engine.builders import add_node, hold_devices, make_ask
from tests.core.engine.gang.rules import assert_kept, assert_not_beyond
from tests.core.engine.gang.topologies import CLIQUE, RACK, ZONE
from tests.core.engine.score.test_live_fragmentation import fragments_on
from tests.core.queue.machine import MIX

SPREADS = [Spread(label=ZONE, max_skew=1), Spread(label=RACK, most=1), Spread(label=RACK, max_skew=2)]


@st.composite
def clusters(draw: st.DrawFn) -> Ledger:
    """A few nodes with some of the labels, and devices that are taken in part."""
    ledger = Ledger()
    for number in range(draw(st.integers(1, 8))):
        values = {ZONE: st.sampled_from(["z0", "z1"]), RACK: st.sampled_from(["r0", "r1"]), CLIQUE: st.just("c0")}
        labels = {label: draw(value) for label, value in values.items() if draw(st.integers(0, 5))}
        add_node(ledger, f"n{number}", gpus=draw(st.integers(1, 4)), cpu_milli=4000, labels=labels)
        for index in range(len(ledger.devices(f"n{number}"))):
            if draw(st.integers(0, 3)) == 0:
                milli = draw(st.sampled_from([1000, 500, 300]))
                mode = "Exclusive" if milli == 1000 else "Fractional"
                hold_devices(ledger, f"n{number}", index, share_milli=milli, mode=mode)
    if draw(st.booleans()):
        price_by(fragments_on(ledger, *MIX), ledger=ledger)
    return ledger


@st.composite
def gangs(draw: st.DrawFn) -> Ask:
    """A request with rules."""
    ask = make_ask(draw(st.sampled_from(["1", "2", "0.5", "0.3"])), cpu_milli=draw(st.sampled_from([0, 1500])))
    levels = [level.name for level in DEFAULT_LEVELS]
    required = draw(st.sampled_from(["", "zone", "rack", "nvlink"]))
    narrower = levels[levels.index(required) + 1 :] if required else levels
    grouped = draw(st.booleans())
    spreads = draw(
        st.lists(
            st.sampled_from(
                [Spread(label=ZONE, max_skew=1), Spread(label=RACK, most=1), Spread(label=RACK, max_skew=2)]
            ),
            max_size=1,
        )
    )
    rules = Topology(
        levels=DEFAULT_LEVELS,
        required=required,
        preferred=draw(st.sampled_from(["", *narrower])),
        group_size=2 if grouped else 0,
        group_level=draw(st.sampled_from(narrower)) if grouped else "",
        spreads=tuple(spreads),
    )
    return replace(ask, topology=rules, apart=draw(st.integers(0, 5)) == 0)


@given(ledger=clusters(), ask=gangs(), groups=st.integers(1, 4), elastic=st.booleans())
@settings(max_examples=80, deadline=None)
def test_every_plan_keeps_the_rules_and_promises_what_there_is(
    ledger: Ledger, ask: Ask, groups: int, elastic: bool
) -> None:
    assert ask.topology is not None
    before = ledger.content()
    found = place(ledger, ask=ask, workers=2 * groups, key="x", least=2 if elastic else None)
    assert ledger.content() == before
    if isinstance(found, Shortage):
        assert found.message
        return
    assert len(found) == 2 * groups or (elastic and len(found) >= 2)
    assert [claim.key for claim in found] == [f"x/{number}" for number in range(len(found))]
    assert_kept(found, topology=ask.topology, ledger=ledger)
    assert_not_beyond(found, ledger=ledger)
    if ask.apart:
        assert len({claim.node for claim in found}) == len(found)


@given(ledger=clusters(), ask=gangs())
@settings(max_examples=30, deadline=None)
def test_every_reservation_keeps_the_rules(ledger: Ledger, ask: Ask) -> None:
    assert ask.topology is not None
    leaving = [
        Leaving(at_seconds=60.0 * number, key=claim.key, job=claim.key) for number, claim in enumerate(ledger.claims())
    ]
    job = Candidate(key="job", ask=ask, workers=4)
    found = reserve(job, ledger=ledger, sites={}, leaving=leaving)
    if found is not None:
        assert_kept(found.claims, topology=ask.topology, ledger=ledger)
