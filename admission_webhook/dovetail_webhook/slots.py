"""Bounds concurrent work by count and memory; further work waits in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Slots:
    """Runs work in threads, in order of arrival, at most `count` and `memory` bytes at a time.

    It uses threads because a review of megabytes may take 0.1 s, during which probes, deadlines and small reviews must
    continue.
    """

    def __init__(self, *, count: int, memory: int) -> None:
        self._free = count
        self._memory = memory
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix="review")

    async def run(self, work: Callable[[], T], *, memory: int) -> T:
        """Run `work` once a slot and `memory` bytes are free, and return its result.

        `memory` must not exceed the total. Work that has begun occupies its slot to its end even if the caller is
        cancelled, because a thread cannot be stopped.
        """
        await self._take(memory)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(lambda _: self._give(memory))
        return await asyncio.shield(running)

    async def _take(self, memory: int) -> None:
        if not self._waiting and self._has(memory):
            self._hold(memory)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (memory, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._wake()
            elif not turn.cancelled():
                self._give(memory)
            raise

    def _give(self, memory: int) -> None:
        self._free += 1
        self._memory += memory
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._has(self._waiting[0][0]):
            memory, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._hold(memory)
                turn.set_result(None)

    def _has(self, memory: int) -> bool:
        return self._free > 0 and memory <= self._memory

    def _hold(self, memory: int) -> None:
        self._free -= 1
        self._memory -= memory
