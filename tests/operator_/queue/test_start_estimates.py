"""Estimates of starts go on in parallel to the queue, whatever fails."""

import asyncio
from collections.abc import Iterator
from datetime import datetime

from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.start_estimates import StartEstimates
from dovetail_operator.queue.verdict_updates import VerdictUpdates
from dovetail_operator.queue.wake_up import WakeUp
from tests import virtual_time
from tests.background import running
from tests.operator_.builders import NOW, make_state
from tests.operator_.queue.test_cycle import occupy, submit


def test_a_failure_to_estimate_is_followed_by_the_next_estimate() -> None:
    virtual_time.run(_estimate_after_failures(2))


async def _estimate_after_failures(failures: int) -> None:
    state, wake_up = make_state(a=1), WakeUp()
    occupy(state, gpus=1, seconds=3600)
    submit(state, "waits")
    times: Iterator[datetime] = iter([NOW])

    def now() -> datetime:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise RuntimeError("no estimate")
        return next(times)

    updates = VerdictUpdates(state.decisions, changed=list[str]().append, admitted=list[str]().append, wake_up=wake_up)
    estimates = StartEstimates(state, caches=caches_for(state), updates=updates, wake_up=wake_up, now=now)
    estimates.request()
    async with running(estimates.run()), asyncio.timeout(60):
        while not estimates.places:  # noqa: ASYNC110 - estimates have no event
            await asyncio.sleep(0.1)
    assert list(estimates.places) == ["uid-waits"]
