"""How the queue shares the time with the rest of the operator."""

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Any, cast

from dovetail_operator.job.plan_doubts import Doubt
from dovetail_operator.queue.cycle import Cycle
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.loop import Breath, Queueing, seconds_until_next_foresight
from tests.operator_.builders import make_state

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def work(seconds: float) -> None:
    """Use that much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_what_others_do_meanwhile_does_not_count_as_the_queues_own_work() -> None:
    breath = Breath()
    asyncio.get_running_loop().call_soon(work, 0.5)
    work(0.05)
    await breath.take()
    work(0.05)
    assert 0.1 <= breath.busy_seconds < 0.5


async def test_an_estimate_that_others_held_up_is_made_anew_as_soon_as_any_other() -> None:
    breath = Breath()
    asyncio.get_running_loop().call_soon(work, 0.5)
    work(0.03)
    await breath.take()
    assert seconds_until_next_foresight(breath) < 0.5 / 0.05


async def test_a_plan_may_be_overtaken_of_a_job_that_has_just_gone() -> None:
    dirty: list[str] = []
    queueing = Queueing(
        make_state(),
        numbers=cast("Any", None),
        counters=cast("Any", None),
        dirty=dirty.append,
        let_go=dirty.append,
        now=lambda: NOON,
        rng=random.Random(7),
    )
    refused = Doubt(why="refused", patience_seconds=0.0, rest_seconds=30.0, words="no node")
    cycle = Cycle(now=NOON, caches=caches_for(queueing._state), doubts={"uid-x": refused}, planned={"uid-x": "team/x"})
    queueing._doubt(cycle)
    assert dirty == ["team/x"]
    # So that it is looked at again, another timer runs.
    assert queueing._renewal is not None
    queueing._renewal.cancel()
