"""What a cycle does with the room at the destinations of moves: it is the job's, or as it was before."""

from dataclasses import replace
from random import Random

from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.inputs.candidates import destination_key
from dovetail.queue.model.candidates import Candidate, Room, find_room
from dovetail_operator.queue.moving import started_elsewhere
from tests.core.engine.builders import hold_devices, make_ask, make_ledger
from tests.seeds import seeds

Held = dict[str, list[Claim]]


@seeds(100)
def test_the_room_of_a_move_is_all_of_the_job_s_or_stays_held(seed: int) -> None:
    random = Random(seed)
    ledger = make_ledger(a=4, b=4, c=4)
    hold_devices(ledger, "a", 0, key="others")
    jobs = [_job(f"uid-{number}", random=random) for number in range(4)]
    held: Held = {}
    moving: dict[str, Candidate] = {}
    for job in jobs:
        there = replace(job, key=destination_key(job.key))
        room = find_room(there, ledger=ledger, fit_cache=FitCache(ledger), sites={})
        if random.random() < 0.8 and isinstance(room, Room):
            # Pods of others may have taken a part of it since.
            held[job.key] = [claim for claim in room.claims if random.random() < 0.85]
            moving[job.key] = there
            ledger.commit_all(held[job.key])
    lost = {job.key for job in jobs if random.random() < 0.2}
    waiting = [job for job in jobs if random.random() < 0.8]
    want = {claim.key: claim for claim in ledger.claims()}
    starts = {}
    for job in waiting:
        if job.key not in lost and len(held.get(job.key, ())) == job.workers and job.key in moving:
            starts[job.key] = [replace(claim, key=f"{job.key}/{at}") for at, claim in enumerate(held[job.key])]
            want = {key: claim for key, claim in want.items() if not key.startswith(f"{destination_key(job.key)}/")}
            want |= {claim.key: claim for claim in starts[job.key]}
    found = {each.key: each for each in started_elsewhere(waiting, moving=moving, lost=lost, ledger=ledger)}
    assert {key: list(each.claims) for key, each in found.items()} == starts
    assert {claim.key: claim for claim in ledger.claims()} == want


def _job(uid: str, *, random: Random) -> Candidate:
    return Candidate(key=uid, ask=make_ask(random.choice(["1", "0.5"])), workers=random.randint(1, 3), name=f"n/{uid}")
