"""Moves that are under way: what is held until they are over, and what is free afterwards."""

from collections.abc import Iterable
from random import Random

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.model.candidates import Candidate, Room, find_room
from dovetail.queue.moves.under_way import Moving, with_moves
from tests.core.engine.builders import hold_devices, make_ask, make_ledger
from tests.seeds import seeds

Devices = set[str]


def taken(ledger: Ledger) -> Devices:
    return {device.uuid for claim in ledger.claims() for device in claim.devices}


@seeds(60)
def test_until_a_move_is_over_both_ends_of_it_are_held_and_then_one(seed: int) -> None:
    random = Random(seed)
    ledger = make_ledger(a=4, b=4, c=2)
    for node, gpus in (("a", 4), ("b", 4), ("c", 2)):
        for index in range(gpus):
            if random.random() < 0.5:
                hold_devices(ledger, node, index, key=f"{node}{index}")
    claims = sorted(claim.key for claim in ledger.claims())
    moving = tuple(random.sample(claims, random.randint(0, len(claims) // 2)))
    job = Candidate(key="job", ask=make_ask(random.choice(["1", "2", "4"])), workers=random.choice([1, 1, 2]))
    held, after = with_moves([Moving(job=job, claims=moving)], ledger=ledger, sites={})
    left = ledger.copy()
    for key in moving:
        left.release(key)
    assert after.content() == left.content()
    room = find_room(job, ledger=left, fit_cache=FitCache(left), sites={})
    its = _devices(room.claims) if isinstance(room, Room) else set()
    assert {claim.key for claim in held.claims()} >= set(claims)
    assert taken(held) == taken(ledger) | its


@seeds(60)
def test_the_rooms_of_plans_that_are_under_way_are_apart(seed: int) -> None:
    random = Random(seed)
    ledger = make_ledger(a=4, b=4, c=4)
    for node in "abc":
        hold_devices(ledger, node, random.randint(0, 3), key=f"moves from {node}")
    plans = [
        Moving(job=Candidate(key=node, ask=make_ask(random.choice(["2", "3", "4"]))), claims=(f"moves from {node}",))
        for node in random.sample("abc", 2)
    ]
    held, _ = with_moves(plans, ledger=ledger, sites={})
    rooms = [claim for claim in held.claims() if not claim.key.startswith("moves")]
    assert len(_devices(rooms)) == sum(len(_devices([claim])) for claim in rooms)
    assert not _devices(rooms) & taken(ledger)


def _devices(claims: Iterable[Claim]) -> Devices:
    """Those of which something is held beyond what the jobs that move hold."""
    return {device.uuid for claim in claims for device in claim.devices if device.share_milli}
