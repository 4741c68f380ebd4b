"""Work at one time: bounded in number and memory, first come first served."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail_webhook.app import Slots
from tests.background import eventually
from tests.faults import at_each_await


class Gate:
    """Work that lasts until it is let through, and counts how much of it runs."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.running = self.most = 0

    def work(self) -> int:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.open.wait(timeout=30)
        with self.lock:
            self.running -= 1
        return self.most


@pytest.mark.parametrize(("memory", "most"), [(1, 4), (30, 3), (60, 1)], ids=["by number", "by memory", "one large"])
async def test_no_more_runs_at_one_time_than_there_is_room_for(memory: int, most: int) -> None:
    slots, gate = Slots(count=4, memory=100), Gate()
    tasks = [asyncio.create_task(slots.run(gate.work, memory=memory)) for _ in range(9)]
    await eventually(lambda: gate.running == most)
    gate.open.set()
    await asyncio.gather(*tasks)
    assert gate.most == most


async def test_work_whose_caller_went_keeps_its_slot_until_it_ends() -> None:
    slots, gate = Slots(count=1, memory=1), Gate()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await slots.run(gate.work, memory=1)
    second = asyncio.create_task(slots.run(lambda: "second", memory=1))
    await asyncio.sleep(0)
    assert not second.done()
    gate.open.set()
    assert await asyncio.wait_for(second, timeout=30) == "second"


async def test_who_waits_no_longer_is_passed_over() -> None:
    slots, gate = Slots(count=1, memory=10), Gate()
    first = asyncio.create_task(slots.run(gate.work, memory=1))
    large = asyncio.create_task(slots.run(lambda: "large", memory=10))
    small = asyncio.create_task(slots.run(lambda: "small", memory=1))
    await eventually(lambda: gate.running == 1)
    large.cancel()
    gate.open.set()
    assert await asyncio.wait_for(small, timeout=30) == "small"
    await first
    assert large.cancelled()


async def test_a_caller_that_leaves_at_any_await_gives_its_slot_back_once() -> None:
    """With a slot free, and with another one's work that ends while it waits."""

    async def make(*, is_busy: bool) -> Slots:
        slots = Slots(count=1, memory=10)
        if is_busy:
            slots._hold(7)
            ending.append(asyncio.create_task(end_work(slots)))
        return slots

    async def end_work(slots: Slots) -> None:
        while not slots._waiting:  # noqa: ASYNC110 - the slots have no event
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        slots._give(7)

    async def end(slots: Slots) -> object:
        await eventually(lambda: slots._free == 1 and slots._memory == 10)
        return list(slots._waiting)

    ending = list[asyncio.Task[None]]()
    for is_busy in (False, True):
        points = await at_each_await(
            partial(make, is_busy=is_busy), journey=lambda slots: slots.run(lambda: None, memory=10), end=end
        )
        assert points == 1 + is_busy


async def test_a_caller_that_leaves_as_it_gets_its_turn_gives_it_to_the_next_one() -> None:
    slots = Slots(count=1, memory=10)
    slots._hold(1)
    leaving = asyncio.create_task(slots.run(lambda: "first", memory=1))
    following = asyncio.create_task(slots.run(lambda: "second", memory=10))
    await asyncio.sleep(0)
    # Both within one turn of the event loop: the slot is its own already when it is cancelled.
    slots._give(1)
    leaving.cancel()
    assert await asyncio.wait_for(following, timeout=30) == "second"
    await eventually(lambda: slots._free == 1)
    assert slots._memory == 10


class Threads:
    """In place of the pool: work runs until it is ended here, whatever becomes of its caller."""

    def __init__(self) -> None:
        self.running: dict[int, Future[None]] = {}

    def submit(self, work: Callable[[], int]) -> "Future[None]":
        begun: Future[None] = Future()
        begun.set_running_or_notify_cancel()
        self.running[work()] = begun
        return begun

    def end(self, who: int) -> None:
        self.running.pop(who).set_result(None)


@dataclass
class Model:
    """Who runs, first come first served: the first that waits starts once there is room for it, and nobody before.

    What runs goes on without its caller.
    """

    count: int
    memory: int
    running: dict[int, int] = field(default_factory=dict)
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    # Those that run whose callers have left.
    alone: set[int] = field(default_factory=set)

    def wake(self) -> None:
        while self.waiting and len(self.running) < self.count:
            who, memory = self.waiting[0]
            if sum(self.running.values()) + memory > self.memory:
                return
            self.waiting.popleft()
            self.running[who] = memory

    def leave(self, who: int) -> None:
        if who in self.running:
            self.alone.add(who)
        self.waiting = deque(each for each in self.waiting if each[0] != who)
        self.wake()

    def end(self, who: int) -> None:
        del self.running[who]
        self.alone.discard(who)
        self.wake()


STEPS = st.lists(
    st.tuples(st.just("arrive"), st.integers(1, 10))
    | st.tuples(st.just("leave"), st.integers(0, 9))
    | st.tuples(st.just("end"), st.integers(0, 9)),
    min_size=3,
    max_size=16,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sets(st.integers(0, 15)))
def test_who_waits_starts_as_soon_as_there_is_room(steps: list[tuple[str, int]], unseen: set[int]) -> None:
    """Compare with a model after each step, but for those that are followed at once, before anyone has run."""
    asyncio.run(_compare(steps, unseen=unseen))


async def _compare(steps: list[tuple[str, int]], *, unseen: set[int]) -> None:
    slots, model, threads = Slots(count=2, memory=10), Model(count=2, memory=10), Threads()
    pool: Any = threads
    slots._threads = pool
    tasks: dict[int, asyncio.Task[int]] = {}
    for number, (what, value) in enumerate(steps):
        begun = [who for who in model.running if who in threads.running]
        here = [who for who in (*model.running, *(each[0] for each in model.waiting)) if who not in model.alone]
        if what == "arrive":
            tasks[number] = asyncio.create_task(slots.run(partial(int, number), memory=value))
            model.waiting.append((number, value))
            model.wake()
        elif what == "leave" and here and tasks[who := here[value % len(here)]].cancel():
            # One whose turn has come and that has not begun gives its turn to the next.
            if who in model.running and who not in threads.running:
                model.end(who)
            else:
                model.leave(who)
        elif what == "end" and begun:
            threads.end(who := begun[value % len(begun)])
            model.end(who)
        if number not in unseen:
            await _compare_now(slots, model=model, tasks=tasks, threads=threads)
    await _compare_now(slots, model=model, tasks=tasks, threads=threads)
    for who in list(threads.running):
        threads.end(who)
    for task in tasks.values():
        task.cancel()


async def _compare_now(slots: Slots, *, model: Model, tasks: dict[int, asyncio.Task[int]], threads: Threads) -> None:
    for _ in range(4 * len(tasks) + 4):
        await asyncio.sleep(0)
    assert set(threads.running) == set(model.running)
    callers = {who for who, task in tasks.items() if not task.done()}
    assert callers == {who for who in model.running if who not in model.alone} | {each[0] for each in model.waiting}
    assert (slots._free, slots._memory) == (2 - len(model.running), 10 - sum(model.running.values()))
