"""When the next scheduling cycle runs: in virtual time, with one task that waits."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

from dovetail_operator.queue.wake_up import WakeUp
from tests.virtual_time import run

BURST = 0.05
LONG_BURST = 0.2


def cycles(scenario: Callable[[WakeUp], Coroutine[Any, Any, None]]) -> list[float]:
    """The times of cycles, in seconds from the start, while the scenario runs and for 100 s after it."""

    async def observed() -> list[float]:
        loop, wake_up, times = asyncio.get_running_loop(), WakeUp(), list[float]()
        start = loop.time()

        async def each() -> None:
            while True:
                await wake_up.wait()
                times.append(round(loop.time() - start, 3))

        task = asyncio.create_task(each())
        await scenario(wake_up)
        await asyncio.sleep(100)
        task.cancel()
        return times

    return run(observed())


def seconds_of(pause: Callable[[WakeUp], Awaitable[None]], *, happens: Callable[[WakeUp], None]) -> float:
    """How long a pause takes in which that happens after 3 s."""

    async def scenario() -> float:
        loop, wake_up = asyncio.get_running_loop(), WakeUp()
        start = loop.time()
        loop.call_later(3, lambda: happens(wake_up))
        await pause(wake_up)
        return round(loop.time() - start, 3)

    return run(scenario())


def test_without_a_request_there_is_no_cycle() -> None:
    async def nothing(_: WakeUp) -> None:
        await asyncio.sleep(0)

    assert cycles(nothing) == []


def test_requests_of_one_burst_share_a_cycle_and_a_later_one_gets_its_own() -> None:
    async def scenario(wake_up: WakeUp) -> None:
        wake_up.soon()
        await asyncio.sleep(BURST / 2)
        wake_up.at_once()
        await asyncio.sleep(1)
        wake_up.at_once()

    assert cycles(scenario) == [BURST, 1 + 1.5 * BURST]


def test_while_requests_go_on_each_cycle_waits_longer_for_more_of_them() -> None:
    async def scenario(wake_up: WakeUp) -> None:
        for _ in range(10):
            wake_up.at_once()
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        wake_up.at_once()

    found = cycles(scenario)
    assert found[0] == BURST
    assert {round(later - earlier, 3) for earlier, later in pairwise(found[1:-1])} == {LONG_BURST}
    assert found[-1] == 2 + BURST


def test_the_earliest_time_that_was_asked_for_counts() -> None:
    async def scenario(wake_up: WakeUp) -> None:
        for seconds in (30, 5, 10):
            wake_up.within(seconds=seconds)

    assert cycles(scenario) == [5 + BURST]


def test_a_time_may_be_asked_for_again_once_it_has_come() -> None:
    async def scenario(wake_up: WakeUp) -> None:
        wake_up.within(seconds=5)
        await asyncio.sleep(6)
        wake_up.within(seconds=30)

    assert cycles(scenario) == [5 + BURST, 36 + BURST]


def test_only_an_urgent_request_ends_the_pause_early() -> None:
    async def pause(wake_up: WakeUp) -> None:
        await wake_up.pause(seconds=10)

    assert seconds_of(pause, happens=WakeUp.at_once) == 3
    assert seconds_of(pause, happens=WakeUp.soon) == 10
    assert seconds_of(pause, happens=lambda wake_up: wake_up.within(seconds=1)) == 10


def test_a_cycle_answers_the_urgent_requests_before_it() -> None:
    async def scenario() -> float:
        loop, wake_up = asyncio.get_running_loop(), WakeUp()
        wake_up.at_once()
        await wake_up.wait()
        start = loop.time()
        await wake_up.pause(seconds=10)
        return loop.time() - start

    assert run(scenario()) == 10
