import asyncio

import pytest
from structlog.testing import capture_logs

from dovetail.process.guarded_loops import Guard, repeat
from tests.background import eventually


async def test_a_round_that_fails_is_followed_by_the_next() -> None:
    rounds = asyncio.Semaphore(0)

    def act() -> None:
        rounds.release()
        raise RecursionError

    task = asyncio.create_task(repeat(act, every_seconds=0, what="it"))
    async with asyncio.timeout(60):
        for _ in range(3):
            await rounds.acquire()
    task.cancel()


async def test_a_round_may_wait() -> None:
    done = asyncio.Event()

    async def act() -> None:
        await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(repeat(act, every_seconds=0, what="it"))
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()


async def test_to_be_cancelled_is_no_failure() -> None:
    with pytest.raises(asyncio.CancelledError), Guard("it").around():
        raise asyncio.CancelledError


def test_a_failure_that_repeats_is_logged_once_for_each_object() -> None:
    guard = Guard("it")
    with capture_logs() as lines:
        for key in ("a", "a", "b", "a"):
            with guard.around(key):
                raise ArithmeticError("no such number")
    assert [line["key"] for line in lines] == ["a", "b"]


def test_a_failure_after_a_success_is_logged_again() -> None:
    guard = Guard("it")
    with capture_logs() as lines:
        for divisor in (0, 1, 0):
            with guard.around("a"):
                1 // divisor
    assert len(lines) == 2


async def test_the_first_pause_may_be_another_than_the_others() -> None:
    rounds: list[int] = []
    task = asyncio.create_task(repeat(lambda: rounds.append(1), every_seconds=3600, what="it", first_after_seconds=0))
    await eventually(lambda: bool(rounds))
    # The second pause is an hour.
    await asyncio.sleep(0.02)
    task.cancel()
    assert rounds == [1]
