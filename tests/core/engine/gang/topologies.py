"""Clusters with levels of the network, and gangs with rules about them."""

from dataclasses import replace
from typing import Any

from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.topology import DEFAULT_LEVELS, Topology
from tests.core.engine.builders import add_node, make_ask

ZONE, BLOCK, RACK, CLIQUE, HOST = (level.label for level in DEFAULT_LEVELS)


def make_racks(*racks: int, gpus: int = 8, zones: int = 1, **facts: Any) -> Ledger:
    """So many nodes in each rack of each zone: `make_racks(2, 4)` has r0 with two nodes and r1 with four."""
    ledger = Ledger()
    for zone in range(zones):
        for rack, nodes in enumerate(racks):
            for node in range(nodes):
                labels = {ZONE: f"z{zone}", RACK: f"r{rack}"}
                name = f"z{zone}-r{rack}-n{node}" if zones > 1 else f"r{rack}-n{node}"
                add_node(ledger, name, gpus=gpus, labels=labels, **facts)
    return ledger


def topology(**rules: Any) -> Topology:
    return Topology(levels=DEFAULT_LEVELS, **rules)


def gang(gpu: str, *, ask: Ask | None = None, apart: bool = False, **rules: Any) -> Ask:
    return replace(ask or make_ask(gpu), apart=apart, topology=topology(**rules))


def planned(ledger: Ledger, ask: Ask, *, workers: int, least: int | None = None) -> list[Claim] | str:
    """The plan, or the reason and the sentence. The ledger must be unchanged."""
    before = ledger.content()
    found = place(ledger, ask=ask, workers=workers, key="x", least=least)
    assert ledger.content() == before
    if isinstance(found, Shortage):
        return f"{found.reason}: {found.message}"
    assert [claim.key for claim in found] == [f"x/{number}" for number in range(len(found))]
    return found


def nodes_of(ledger: Ledger, ask: Ask, *, workers: int, least: int | None = None) -> list[str] | str:
    """The node of each worker, or the reason and the sentence."""
    found = planned(ledger, ask, workers=workers, least=least)
    return found if isinstance(found, str) else [claim.node for claim in found]
