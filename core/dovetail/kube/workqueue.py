"""A work queue of keys: each is queued once and handled by one worker at a time."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.kube.retry import BACKOFF, Backoff

log = logging.getLogger("dovetail.workqueue")

# One key in this many comes from the ordinary lane, so that no ordinary key waits for ever.
_ONE_IN: Final = 4


class WorkQueue:
    """Dirty keys in order of arrival; keys of the `first` lane come before ordinary ones.

    A key that becomes dirty while it is being handled is queued again afterwards.
    """

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        # A semaphore, not an event: each key wakes one worker, not all of them.
        self._waiting = asyncio.Semaphore(0)
        self._lanes: tuple[deque[str], deque[str]] = deque(), deque()
        self._taken = 0
        self._dirty: set[str] = set()
        self._first: set[str] = set()
        self._at_work: set[str] = set()
        self._timers: dict[str, tuple[float, asyncio.Handle]] = {}

    def __len__(self) -> int:
        return len(self._dirty)

    @property
    def load(self) -> int:
        """How many keys are waiting or being handled. A key in both states counts twice."""
        return len(self._dirty) + len(self._at_work)

    def add(self, key: str, *, first: bool = False) -> None:
        """Queue `key`; with `first` ahead of the ordinary keys that wait already."""
        if key in self._dirty and (key in self._first or not first):
            return
        self._dirty.add(key)
        if first:
            self._first.add(key)
        if key not in self._at_work:
            self._put(key)

    def add_later(self, key: str, *, seconds: float) -> None:
        """Queue `key` after `seconds`, or at the earlier time of a timer that is already set."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        if key in self._timers:
            earlier, timer = self._timers[key]
            if earlier <= due:
                return
            timer.cancel()
        # uvloop's handles of calls that are due at once do not know their time, so the queue keeps it here.
        self._timers[key] = (due, loop.call_at(due, self._ring, key))

    def forget(self, key: str) -> None:
        """Drop the timer and the failure count of a key whose object is gone."""
        self._failures.pop(key, None)
        if key in self._timers:
            _, timer = self._timers.pop(key)
            timer.cancel()

    async def get(self) -> str:
        """Wait for the next key. Call `done` with it once it has been handled."""
        while True:
            await self._waiting.acquire()
            key = self._next()
            # A key is in both lanes when it was added with `first` while it waited as an ordinary key.
            if key in self._dirty and key not in self._at_work:
                self._dirty.discard(key)
                self._first.discard(key)
                self._at_work.add(key)
                return key

    def done(self, key: str) -> None:
        """Mark `key` as handled. It is queued again if it became dirty meanwhile."""
        self._at_work.discard(key)
        if key in self._dirty:
            self._put(key)

    def _put(self, key: str) -> None:
        self._lanes[key not in self._first].append(key)
        self._waiting.release()

    def _next(self) -> str:
        self._taken += 1
        first, others = self._lanes
        return others.popleft() if others and (not first or self._taken % _ONE_IN == 0) else first.popleft()

    async def serve(
        self,
        handle: Callable[[str], Awaitable[None]],
        *,
        hands: int,
        failed: Callable[[str, Exception, float], None],
        rng: random.Random,
        backoff: Backoff = BACKOFF,
    ) -> None:
        """Handle keys with `hands` workers until cancelled.

        An error affects only its key: the key is queued again after a backoff that grows with each failure, and
        `failed` receives the key, the error and the wait in seconds.
        """

        async def work() -> None:
            while True:
                key = await self.get()
                try:
                    await handle(key)
                    self._failures.pop(key, None)
                except Exception as error:  # noqa: BLE001 - a key may be of an object that a user wrote
                    wait = backoff.seconds(self._failures.get(key, 0), rng=rng)
                    self._failures[key] = self._failures.get(key, 0) + 1
                    self.add_later(key, seconds=wait)
                    _report(failed, key=key, error=error, wait=wait)
                finally:
                    self.done(key)

        async with asyncio.TaskGroup() as group:
            for _ in range(hands):
                group.create_task(work())

    def _ring(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)


def _report(failed: Callable[[str, Exception, float], None], *, key: str, error: Exception, wait: float) -> None:
    try:
        failed(key, error, wait)
    except Exception:
        log.exception("%s failed, and reporting that failed too", key)
