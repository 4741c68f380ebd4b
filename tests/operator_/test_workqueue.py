import asyncio

from dovetail_operator.workqueue import WorkQueue


async def taken(queue: WorkQueue) -> str:
    async with asyncio.timeout(1):
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
