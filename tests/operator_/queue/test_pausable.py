"""Iterators whose deep calls pause for the event loop."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from dovetail_operator.queue.time_slices import SLICE_SECONDS, Pausable, TimeSlices
from tests.clock import Clock


class Others:
    """Another task of the event loop, which counts how often it gets its turn."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


def search(steps: int, *, step: Callable[[], None]) -> int:
    """What is deep below the iterator: some steps one after another."""
    for _ in range(steps):
        step()
    return steps


@pytest.fixture
def pausable(clock: Clock) -> Pausable[int]:
    return Pausable(TimeSlices(clock=clock))


@pytest.mark.parametrize(("step_seconds", "turns"), [(SLICE_SECONDS, 5), (SLICE_SECONDS / 5, 1), (0.0, 0)])
async def test_other_tasks_run_within_an_item_that_takes_more_than_a_slice(
    pausable: Pausable[int], clock: Clock, step_seconds: float, turns: int
) -> None:
    others = Others()

    def step() -> None:
        clock.now += step_seconds
        pausable.pause()

    task = asyncio.create_task(others.run())
    found = [item async for item in pausable.over(search(steps, step=step) for steps in (5,))]
    task.cancel()
    assert (found, others.turns) == ([5], turns)


async def test_items_come_in_their_order_and_a_slice_may_end_between_them(
    pausable: Pausable[int], clock: Clock
) -> None:
    others, seen = Others(), list[tuple[int, int]]()
    task = asyncio.create_task(others.run())
    async for item in pausable.over(iter(range(3))):
        clock.now += SLICE_SECONDS
        seen.append((item, others.turns))
    task.cancel()
    assert seen == [(0, 0), (1, 1), (2, 2)]


async def test_an_error_after_a_pause_is_the_callers(pausable: Pausable[int], clock: Clock) -> None:
    def failing() -> Iterator[int]:
        yield 1
        clock.now += SLICE_SECONDS
        pausable.pause()
        raise RuntimeError("no room")

    items = pausable.over(failing())
    assert await anext(items) == 1
    with pytest.raises(RuntimeError, match="no room"):
        await anext(items)


async def test_an_iteration_that_ends_early_leaves_nothing_open(pausable: Pausable[int], clock: Clock) -> None:
    steps = list[str]()

    def changing() -> Iterator[int]:
        yield 1
        steps.append("changed")
        try:
            clock.now += SLICE_SECONDS
            pausable.pause()
            steps.append("went on")
        finally:
            steps.append("changed back")
        yield 2

    async def ends_in_the_pause() -> None:
        async for _ in pausable.over(changing()):
            pass

    task = asyncio.create_task(ends_in_the_pause())
    await asyncio.sleep(0)
    assert steps == ["changed"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["changed", "changed back"]
    async with aclosing(pausable.over(iter(range(3)))) as items:
        assert await anext(items) == 0


async def test_a_pause_outside_of_the_iteration_goes_on(pausable: Pausable[int], clock: Clock) -> None:
    clock.now += SLICE_SECONDS
    pausable.pause()
    async for _ in pausable.over(iter(range(1))):
        pausable.pause()
