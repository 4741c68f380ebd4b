"""How the queue shares the time with the rest of the operator."""

import asyncio
import time

from dovetail_operator.queue.start_estimates import seconds_until_next
from dovetail_operator.queue.time_slices import SLICE_SECONDS, TimeSlices
from tests.clock import Clock


def work(seconds: float) -> None:
    """Use that much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_what_others_do_meanwhile_does_not_count_as_the_queues_own_work() -> None:
    slices = TimeSlices()
    asyncio.get_running_loop().call_soon(work, 0.5)
    work(0.05)
    await slices.pause_if_due()
    work(0.05)
    assert 0.1 <= slices.busy_seconds < 0.5


async def test_an_estimate_that_others_held_up_is_made_anew_as_soon_as_any_other() -> None:
    slices = TimeSlices()
    asyncio.get_running_loop().call_soon(work, 0.5)
    work(0.03)
    await slices.pause_if_due()
    assert seconds_until_next(slices) < 0.5 / 0.05


async def test_a_pause_is_due_after_a_slice_of_time_and_not_before(clock: Clock) -> None:
    loop, others, slices = asyncio.get_running_loop(), list[float](), TimeSlices(clock=clock)
    for after in (0.0, SLICE_SECONDS, SLICE_SECONDS / 2, SLICE_SECONDS):
        clock.now += after
        loop.call_soon(others.append, after)
        await slices.pause_if_due()
        assert bool(others) is (after == SLICE_SECONDS)
        await asyncio.sleep(0)
        others.clear()


async def test_estimates_leave_nineteen_times_their_own_time_and_a_second_at_least() -> None:
    slices = TimeSlices()
    assert seconds_until_next(slices) == 1
    work(0.1)
    assert 2 <= seconds_until_next(slices) < 10
