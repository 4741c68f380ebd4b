"""How the queue shares the time with the rest of the operator."""

import asyncio
import time

from dovetail_operator.queueing import Breath


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
