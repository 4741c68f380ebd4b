"""Keys to look at: each once, however often it was asked for, and never twice at the same time."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.kube.retry import BACKOFF, Backoff

log = logging.getLogger("dovetail.workqueue")

# Of so many keys one is from those that are not to come first, so that none waits for ever.
_ONE_IN: Final = 4


class WorkQueue:
    """Dirty keys in order of arrival, those that are to come first before others.

    A key that gets dirty while it is worked on comes again after that.
    """

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        # A key wakes one of the hands that wait, not all of them.
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
        """How many keys wait or are looked at now; one that is both counts twice."""
        return len(self._dirty) + len(self._at_work)

    def add(self, key: str, *, first: bool = False) -> None:
        """Look at `key` soon; `first` before most that wait already."""
        if key in self._dirty and (key in self._first or not first):
            return
        self._dirty.add(key)
        if first:
            self._first.add(key)
        if key not in self._at_work:
            self._put(key)

    def add_later(self, key: str, *, seconds: float) -> None:
        """Look at `key` after that time, or earlier if an earlier look is due already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        if key in self._timers:
            earlier, timer = self._timers[key]
            if earlier <= due:
                return
            timer.cancel()
        # uvloop's handles of what is due at once cannot tell when they are: so that is kept beside them.
        self._timers[key] = (due, loop.call_at(due, self._ring, key))

    def forget(self, key: str) -> None:
        """Drop the timer and the failures of a key whose object is gone."""
        self._failures.pop(key, None)
        if key in self._timers:
            _, timer = self._timers.pop(key)
            timer.cancel()

    async def get(self) -> str:
        """The next key. Call `done` with it when it has been looked at."""
        while True:
            await self._waiting.acquire()
            key = self._next()
            # It stands in both lanes where it was to come first only later.
            if key in self._dirty and key not in self._at_work:
                self._dirty.discard(key)
                self._first.discard(key)
                self._at_work.add(key)
                return key

    def done(self, key: str) -> None:
        """The look at `key` is over."""
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
        """Handle keys until cancelled, that many at a time.

        An error costs its key alone: the key comes again, later each time, and `failed` gets the key, the error and the
        wait in seconds.
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
                    _report(failed, key, error, wait)
                finally:
                    self.done(key)

        async with asyncio.TaskGroup() as group:
            for _ in range(hands):
                group.create_task(work())

    def _ring(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)


def _report(failed: Callable[[str, Exception, float], None], key: str, error: Exception, wait: float) -> None:
    try:
        failed(key, error, wait)
    except Exception:
        log.exception("%s failed, and reporting that failed too", key)
