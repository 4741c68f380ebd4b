import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from dovetail.kube.errors import Unreachable
from dovetail.kube.retry import Backoff
from dovetail_agent.keyqueue import KeyQueue

SOON = Backoff(first_seconds=0.001, longest_seconds=0.001)


@contextlib.asynccontextmanager
async def running(queue: KeyQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_key_asked_for_many_times_is_handled_once() -> None:
    handled: Counter[str] = Counter()
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled[key] += 1
        if key == "last":
            done.set()

    queue = KeyQueue(handle, hands=1, debounce_seconds=0.005)
    async with running(queue):
        for _ in range(10):
            queue.add("a")
        queue.add("last", after_seconds=0.03)
        await done.wait()
    assert handled == {"a": 1, "last": 1}


async def test_a_key_that_is_asked_for_while_in_hand_is_handled_again_and_never_by_two() -> None:
    at_once = 0
    most = 0
    calls = asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def handle(_key: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        calls.release()
        await go_on.wait()
        at_once -= 1

    queue = KeyQueue(handle, hands=4, debounce_seconds=0)
    async with running(queue):
        queue.add("a")
        await calls.acquire()
        queue.add("a")
        go_on.set()
        await calls.acquire()
    assert most == 1


async def test_a_failed_write_is_tried_again_and_counted() -> None:
    done = asyncio.Event()
    attempts = 0

    async def handle(_key: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise Unreachable("server", problem="refused")
        done.set()

    queue = KeyQueue(handle, hands=1, debounce_seconds=0, backoff=SOON)
    async with running(queue):
        queue.add("a")
        await done.wait()
    assert (attempts, queue.failures_total) == (3, 2)


async def test_a_fault_of_ours_ends_the_queue() -> None:
    async def handle(_key: str) -> None:
        raise ValueError("ours")

    queue = KeyQueue(handle, hands=2, debounce_seconds=0)
    queue.add("a")
    with pytest.raises(ExceptionGroup) as caught:
        await queue.run()
    assert caught.group_contains(ValueError, match="ours")


async def test_the_earlier_of_two_times_counts() -> None:
    done = asyncio.Event()

    async def handle(_key: str) -> None:
        done.set()

    queue = KeyQueue(handle, hands=1, debounce_seconds=0)
    async with running(queue), asyncio.timeout(5):
        queue.add("a", after_seconds=3600)
        queue.add("a")
        queue.add("a", after_seconds=3600)
        await done.wait()


async def test_a_forgotten_key_is_not_handled() -> None:
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled.append(key)
        done.set()

    queue = KeyQueue(handle, hands=1, debounce_seconds=0)
    async with running(queue):
        queue.add("gone", after_seconds=0.001)
        queue.forget("gone")
        queue.add("here", after_seconds=0.01)
        await done.wait()
    assert handled == ["here"]
