"""Gangs whose workers take a node each."""

from dataclasses import replace

import pytest

from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from tests.core.engine.builders import hold_devices, make_ask, make_ledger


def placed(ledger: Ledger, gpu: str, *, workers: int, least: int | None = None) -> list[str] | str:
    """The nodes of a plan, or the reason and the sentence."""
    changes = ledger.changes
    found = place(ledger, ask=replace(make_ask(gpu), apart=True), workers=workers, key="x", least=least)
    if isinstance(found, Shortage):
        return f"{found.reason}: {found.message}"
    assert [claim.key for claim in found] == [f"x/{number}" for number in range(len(found))]
    assert ledger.changes == changes
    return sorted(claim.node for claim in found)


def test_each_worker_goes_to_a_node_of_its_own() -> None:
    assert placed(make_ledger(a=8, b=2, c=2), "2", workers=3) == ["a", "b", "c"]


def test_an_elastic_gang_has_as_many_workers_as_there_are_nodes_for_it() -> None:
    assert placed(make_ledger(a=8, b=8), "1", workers=5, least=2) == ["a", "b"]


@pytest.mark.parametrize("gpu", ["1", "0.5"])
def test_room_for_both_on_one_node_is_no_room(gpu: str) -> None:
    ledger = make_ledger(a=4, b=2)
    hold_devices(ledger, "b", 0, 1)
    told = placed(ledger, gpu, workers=2)
    assert told == "Resources: Need 2 GPUs, only 1 available: 4 GPUs are free, but each worker takes a node of its own"


def test_more_workers_than_nodes_can_never_start() -> None:
    told = placed(make_ledger(a=4, b=4), "1", workers=3)
    assert told == (
        "ExceedsCapacity: Need 3 GPUs, only 2 available: "
        "at most 2 of 3 workers with 1 GPU each could ever run together, each on a node of its own"
    )


def test_busy_nodes_are_told_as_ever() -> None:
    ledger = make_ledger(a=2, b=2)
    hold_devices(ledger, "a", 0, 1)
    hold_devices(ledger, "b", 0)
    assert placed(ledger, "2", workers=2) == "Resources: Need 4 GPUs, only 1 available"
