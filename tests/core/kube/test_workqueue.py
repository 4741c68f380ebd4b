import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop

from dovetail.kube.retry import Backoff
from dovetail.kube.workqueue import WorkQueue

SOON = Backoff(first_seconds=0.001, longest_seconds=0.001)


async def taken(queue: WorkQueue) -> str:
    async with asyncio.timeout(60):
        return await queue.get()


async def test_a_key_that_is_added_often_comes_once() -> None:
    queue = WorkQueue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_at_work_comes_again_only_when_it_is_done() -> None:
    queue = WorkQueue()
    queue.add("a")
    await taken(queue)
    queue.add("a")
    queue.add("b")
    assert await taken(queue) == "b"
    queue.done("a")
    assert await taken(queue) == "a"


async def test_a_key_that_is_done_and_clean_does_not_come_again() -> None:
    queue = WorkQueue()
    queue.add("a")
    queue.done(await taken(queue))
    queue.add("b")
    assert await taken(queue) == "b"


async def test_a_worker_that_waits_is_woken() -> None:
    queue = WorkQueue()
    waiting = asyncio.create_task(taken(queue))
    await asyncio.sleep(0)
    queue.add("a")
    assert await waiting == "a"


async def test_an_earlier_look_replaces_a_later_one() -> None:
    queue = WorkQueue()
    queue.add_later("a", seconds=3600)
    queue.add_later("a", seconds=0)
    assert await taken(queue) == "a"


async def test_a_later_look_does_not_replace_an_earlier_one() -> None:
    queue = WorkQueue()
    queue.add_later("a", seconds=0)
    queue.add_later("a", seconds=3600)
    assert await taken(queue) == "a"


async def test_a_forgotten_key_does_not_come_later() -> None:
    queue = WorkQueue()
    queue.add_later("a", seconds=0)
    queue.forget("a")
    queue.add_later("b", seconds=0)
    assert await taken(queue) == "b"
    assert len(queue) == 0


class Served:
    """A queue whose keys a handler takes, and the failures that it was told of."""

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self.failures: list[tuple[str, str]] = []

    def serve(self, handle: Callable[[str], Awaitable[None]], *, hands: int = 1) -> Awaitable[None]:
        return self.queue.serve(handle, hands=hands, failed=self._failed, rng=random.Random(1), backoff=SOON)

    @contextlib.asynccontextmanager
    async def running(self, handle: Callable[[str], Awaitable[None]], *, hands: int = 1) -> AsyncIterator[WorkQueue]:
        task = asyncio.ensure_future(self.serve(handle, hands=hands))
        try:
            async with asyncio.timeout(60):
                yield self.queue
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _failed(self, key: str, error: Exception, _wait: float) -> None:
        self.failures.append((key, str(error)))


async def test_a_key_asked_for_many_times_is_handled_once() -> None:
    handled: Counter[str] = Counter()
    done = asyncio.Event()

    async def handle(key: str) -> None:
        handled[key] += 1
        if key == "last":
            done.set()

    async with Served().running(handle) as queue:
        for key in ["a"] * 10 + ["last"]:
            queue.add(key)
        await done.wait()
    assert handled == {"a": 1, "last": 1}


async def test_a_key_is_never_in_two_hands() -> None:
    at_once: list[str] = []
    most = 0
    calls = asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def handle(key: str) -> None:
        nonlocal most
        at_once.append(key)
        most = max(most, len(at_once))
        calls.release()
        await go_on.wait()
        at_once.remove(key)

    async with Served().running(handle, hands=4) as queue:
        queue.add("a")
        await calls.acquire()
        queue.add("a")
        go_on.set()
        await calls.acquire()
    assert most == 1


async def test_a_failure_is_told_and_the_key_comes_again() -> None:
    served = Served()
    done = asyncio.Event()

    async def handle(key: str) -> None:
        if len(served.failures) < 2:
            raise LookupError("not yet")
        done.set()

    async with served.running(handle) as queue:
        queue.add("a")
        await done.wait()
    assert served.failures == [("a", "not yet")] * 2


@pytest.mark.parametrize(
    "error", [ValueError("ours"), RecursionError(), MemoryError(), ExceptionGroup("some", [OSError()])]
)
async def test_an_error_of_any_class_costs_its_key_alone(error: Exception) -> None:
    done = asyncio.Event()

    async def handle(key: str) -> None:
        if key == "poison":
            raise error
        done.set()

    served = Served()
    async with served.running(handle) as queue:
        queue.add("poison")
        queue.add("healthy")
        await done.wait()
    assert served.failures[0] == ("poison", str(error))


async def test_a_report_that_fails_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def handle(key: str) -> None:
        if not caplog.records:
            raise LookupError("not yet")
        done.set()

    def failed(*_: object) -> None:
        raise ArithmeticError

    queue = WorkQueue()
    queue.add("a")
    task = asyncio.ensure_future(queue.serve(handle, hands=1, failed=failed, rng=random.Random(1), backoff=SOON))
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()
    assert "reporting that failed too" in caplog.text


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_key_that_is_due_at_once_may_be_asked_for_again_on_every_event_loop(run: Callable[..., str]) -> None:
    async def twice() -> str:
        queue = WorkQueue()
        queue.add_later("a", seconds=-1)
        queue.add_later("a", seconds=0)
        return await queue.get()

    assert run(twice()) == "a"


async def test_what_is_to_come_first_does_and_lets_every_fourth_of_the_others_pass() -> None:
    queue = WorkQueue()
    for number in range(4):
        queue.add(f"other-{number}")
    for number in range(6):
        queue.add(f"first-{number}", first=True)
    keys = [await taken(queue) for _ in range(10)]
    assert keys == [
        *("first-0", "first-1", "first-2", "other-0"),
        *("first-3", "first-4", "first-5", "other-1"),
        *("other-2", "other-3"),
    ]


async def test_a_key_that_waits_may_be_told_to_come_first_and_comes_once() -> None:
    queue = WorkQueue()
    for key in "abc":
        queue.add(key)
    queue.add("c", first=True)
    queue.add("c", first=True)
    assert [await taken(queue) for _ in range(3)] == ["c", "a", "b"]
    for key in "abc":
        queue.done(key)
    queue.add("d")
    assert await taken(queue) == "d"


async def test_a_key_that_is_to_come_first_while_it_is_worked_on_does_so_after_that() -> None:
    queue = WorkQueue()
    queue.add("a")
    assert await taken(queue) == "a"
    queue.add("b")
    queue.add("a", first=True)
    queue.done("a")
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
