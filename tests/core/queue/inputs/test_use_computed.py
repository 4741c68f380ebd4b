"""What a job uses of its limits over its life, computed again from its workers, its plan and what its pods hold."""

from random import Random
from typing import Any

import pytest

from dovetail.engine.model.claims import Claim
from dovetail.queue.inputs.usage import use_of
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import make_ask
from tests.operator_.builders import NOW, at, make_child, make_job

EACH = 2
ROOM = {"nodes": [{"name": "n2", "workers": 1}], "time": at(10)}


@pytest.mark.parametrize("seed", range(12))
def test_a_job_counts_as_waiting_running_or_not_at_all(seed: int) -> None:
    random = Random(seed)
    for _ in range(25):
        look(random)


def look(random: Random) -> None:
    """One job at some moment of its life."""
    workers = random.randint(1, 4)
    spec: dict[str, Any] = {"workers": workers}
    if random.random() < 0.4:
        spec["minWorkers"] = random.randint(1, workers)
    moves = random.choice([None, None, {"count": 1, "by": "uid-y"}, {"count": 1, "by": "uid-y", "reserved": ROOM}])
    status = {"phase": "Queued"} | ({"startTime": at(-60)} if random.random() < 0.5 else {})
    job = make_job(status=status | ({"move": moves} if moves else {}), **spec)
    runs, asks_for = random.choice([None, False, True]), random.randint(1, workers)
    child = None if runs is None else make_child(job, parallelism=asks_for, suspend=not runs)
    waits, starts_with = random.random() < 0.5, random.randint(spec.get("minWorkers", 1), workers)
    claims = tuple(Claim(key=str(each), node="n1", unnamed=EACH) for each in range(starts_with))
    admitted = Admitted(key=job.metadata.uid, claims=claims) if random.random() < 0.5 else None
    held = [Claim(key=f"p{each}", node="n1", unnamed=EACH) for each in range(random.randint(0, 5))]
    found = use_of(
        job, child=child, ask_of=lambda _: make_ask(str(EACH)), admitted=admitted, waits=waits, quotas=Quotas(),
        held=held,
    )  # fmt: skip

    has_room_elsewhere = moves is not None and "reserved" in moves
    if runs:
        expected = max(asks_for, len(held)), False
    elif waits or has_room_elsewhere:
        starts = admitted is not None and "minWorkers" in spec
        expected = starts_with if starts else workers, admitted is None and not has_room_elsewhere
    else:
        assert found is None
        return
    assert found is not None
    assert (found.milli, found.queued) == (1000 * EACH * expected[0], expected[1])
    assert found.workers == (workers if runs else expected[0])
    assert found.least == spec.get("minWorkers")
    assert (found.start is None) == ("startTime" not in status)
    assert found.start is None or (NOW - found.start).total_seconds() == 60
