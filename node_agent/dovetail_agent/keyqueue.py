"""Keys to look at: each once however often it was asked for, one hand at a time on each, a few hands in all."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.kube.errors import KubeError
from dovetail.kube.retry import Backoff
from dovetail.logs import get_logger

log = get_logger(__name__)

_BACKOFF: Final = Backoff()


class KeyQueue:
    """Calls `handle(key)` some time after `add(key)`; a `KubeError` from it means again, later each time.

    Any other error ends `run()`: it is a fault of ours, and a process that starts anew reads everything afresh.
    """

    def __init__(
        self,
        handle: Callable[[str], Awaitable[None]],
        *,
        hands: int,
        debounce_seconds: float,
        backoff: Backoff = _BACKOFF,
        rng: random.Random | None = None,
    ) -> None:
        self.failures_total = 0
        self._handle = handle
        self._hands = hands
        self._debounce_seconds = debounce_seconds
        self._backoff = backoff
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._in_hand: set[str] = set()
        self._failed: dict[str, int] = {}

    def add(self, key: str, *, after_seconds: float | None = None) -> None:
        """Look at `key` after the debounce, or after that time. The earlier of two times counts."""
        if key in self._waiting:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + (self._debounce_seconds if after_seconds is None else after_seconds)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(at, self._ripen, key)

    def forget(self, key: str) -> None:
        """Do not look at `key` again until it is added anew."""
        self._failed.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._hands):
                group.create_task(self._work())

    def _ripen(self, key: str) -> None:
        del self._timers[key]
        self._waiting.add(key)
        # Whoever has it in hand now began before this was asked, and passes it on when done.
        if key not in self._in_hand:
            self._due.put_nowait(key)

    async def _work(self) -> None:
        while True:
            key = await self._due.get()
            self._waiting.discard(key)
            self._in_hand.add(key)
            try:
                await self._handle(key)
                self._failed.pop(key, None)
            except KubeError as error:
                self._again(key, error)
            finally:
                self._in_hand.discard(key)
                if key in self._waiting:
                    self._due.put_nowait(key)

    def _again(self, key: str, error: KubeError) -> None:
        attempt = self._failed.get(key, 0)
        self._failed[key] = attempt + 1
        self.failures_total += 1
        wait_seconds = self._backoff.seconds(attempt, rng=self._rng)
        log.warning("write failed", node=key, error=str(error), again_in_seconds=round(wait_seconds, 1))
        self.add(key, after_seconds=wait_seconds)
