"""Work that comes to its end whatever happens to the task that began it."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from dovetail.sdk.aio import runtime
from dovetail.sdk.errors import DovetailError

TURNS: Final = 8
STEPS: Final = 3


class Work:
    """Work of some steps, which fails at its end if it is to, and what undoes it."""

    def __init__(self, *, fails: bool) -> None:
        self.done: list[str] = []
        self._fails = fails

    async def steps(self) -> None:
        for step in range(STEPS):
            await asyncio.sleep(0)
            self.done.append(f"step {step}")
        if self._fails:
            raise DovetailError("no")

    async def undo(self, _result: None) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        self.done.append("undone")


async def cancelled_at(turns: tuple[int, ...], *, journey: Coroutine[Any, Any, None]) -> bool:
    """Whether the journey ends by a cancellation, if its task is cancelled at each of these turns."""
    task = asyncio.ensure_future(journey)
    for turn in range(TURNS * 2):
        if turn in turns:
            task.cancel()
        await asyncio.sleep(0)
    with suppress(DovetailError, asyncio.CancelledError):
        await task
    return task.cancelled()


def cancellations() -> Iterator[tuple[int, ...]]:
    """None, each turn, and each two of them; before the first one, nothing has begun."""
    yield ()
    yield from itertools.chain.from_iterable(itertools.combinations(range(1, TURNS), number) for number in (1, 2))


@pytest.mark.parametrize("fails", [False, True])
async def test_work_is_finished_however_often_its_task_is_cancelled(fails: bool) -> None:
    for turns in cancellations():
        work = Work(fails=fails)
        await cancelled_at(turns, journey=runtime.finish(work.steps))
        assert work.done == [f"step {step}" for step in range(STEPS)], turns


@pytest.mark.parametrize("fails", [False, True])
async def test_work_of_a_cancelled_task_is_undone_once_it_has_succeeded_and_no_other(fails: bool) -> None:
    for turns in cancellations():
        work = Work(fails=fails)
        was_cancelled = await cancelled_at(turns, journey=runtime.settled(work.steps, undo=work.undo))
        assert work.done[:STEPS] == [f"step {step}" for step in range(STEPS)], turns
        assert work.done[STEPS:] == (["undone"] if was_cancelled and not fails else []), turns
