"""Plans, reservations, backfill and preemption in one cycle: all of them keep the pair that the mix needs."""

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.live_fragmentation import price_by
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, Leaving
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger
from tests.core.engine.score.test_live_fragmentation import fragments_on

HOUR = 3600.0


def make_job(name: str, gpu: str = "1", *, priority: int = 0, workers: int = 1) -> Candidate:
    return Candidate(
        key=name, ask=make_ask(gpu, policy="Pack"), priority=priority, workers=workers, created=name, run_seconds=HOUR
    )


def pair_and_three(*, priced: bool) -> Ledger:
    """Node a has three free GPUs, node b one pair; usual jobs request two. Best fit takes b, which breaks the pair."""
    ledger = make_ledger(a=4, b=4)
    hold_devices(ledger, "a", 0, key="on a")
    hold_devices(ledger, "b", 0, 1, key="on b")
    if priced:
        price_by(fragments_on(ledger, *["2"] * 20), ledger=ledger)
    return ledger


def full_until_one(*, priced: bool) -> tuple[Ledger, list[Leaving]]:
    """The same, where what is free on b is taken for half an hour, and what is free on a for an hour."""
    ledger = pair_and_three(priced=priced)
    hold_devices(ledger, "a", 1, 2, 3, key="short on a")
    hold_devices(ledger, "b", 2, 3, key="short on b")
    ends = {"short on b": HOUR / 2, "short on a": HOUR}
    return ledger, [Leaving(key=key, job=key, at_seconds=seconds) for key, seconds in ends.items()]


BY_PRICE_AND_BY_BEST_FIT = pytest.mark.parametrize(("priced", "node"), [(True, "a"), (False, "b")])


@BY_PRICE_AND_BY_BEST_FIT
def test_a_plan_goes_where_its_price_is_low(priced: bool, node: str) -> None:
    found = SchedulingCycle(pair_and_three(priced=priced).copy(), sites={}).at(make_job("new"))
    assert isinstance(found, Admitted)
    assert [claim.node for claim in found.claims] == [node]


@pytest.mark.parametrize(("priced", "nodes"), [(True, ["a", "a", "a"]), (False, ["b", "b", "a"])])
def test_a_reservation_is_where_the_job_would_be_planned_then(priced: bool, nodes: list[str]) -> None:
    ledger, ends = full_until_one(priced=priced)
    found = SchedulingCycle(ledger.copy(), sites={}, leaving=ends).at(make_job("gang", workers=3))
    assert isinstance(found, Waits)
    assert found.kept is not None
    assert found.kept.at_seconds == HOUR
    assert [claim.node for claim in found.kept.claims] == nodes


@BY_PRICE_AND_BY_BEST_FIT
def test_a_job_that_backfills_is_planned_beside_the_reservation_by_price(priced: bool, node: str) -> None:
    ledger = pair_and_three(priced=priced)
    add_node(ledger, "c", gpus=8)
    hold_devices(ledger, "c", *range(4), key="on c")
    ends = [Leaving(key="on c", job="on c", at_seconds=HOUR)]
    cycle = SchedulingCycle(ledger.copy(), sites={}, leaving=ends)
    assert isinstance(cycle.at(make_job("all of c", "8")), Waits)
    found = cycle.at(make_job("passes"))
    assert isinstance(found, Admitted)
    assert [claim.node for claim in found.claims] == [node]


@BY_PRICE_AND_BY_BEST_FIT
def test_a_job_whose_victims_have_left_is_planned_by_price(priced: bool, node: str) -> None:
    ledger, _ = full_until_one(priced=priced)
    victims = [
        Running(
            key=f"short on {node}",
            priority=0,
            run_seconds=HOUR,
            claims=(f"short on {node}",),
            yields_to="urgent",
            left=True,
        )
        for node in ("a", "b")
    ]
    evictor = Evictor(running=victims, rules=Rules(gap=10))
    found = SchedulingCycle(ledger.copy(), sites={}, evictor=evictor).at(make_job("urgent", priority=100))
    assert isinstance(found, Admitted)
    assert [claim.node for claim in found.claims] == [node]
