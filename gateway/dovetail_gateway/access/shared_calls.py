"""Calls that are made once for all who wait for the same answer, and end when the last of them has left."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Call(Generic[V]):
    task: asyncio.Task[V]
    waiting: int = 0


class SharedCalls(Generic[K, V]):
    """The calls that run now, by key."""

    def __init__(self) -> None:
        self._running: dict[K, _Call[V]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def result(self, key: K, *, of: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of the call that runs for the key, or of `of()` if none does. Raises what the call raises."""
        call = self._running.get(key)
        if call is None:
            call = self._running[key] = _Call(asyncio.ensure_future(of()))
        call.waiting += 1
        try:
            # One of those who wait may be cancelled while others still do.
            return await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if not call.waiting or call.task.done():
                self._end(key, call=call)

    def _end(self, key: K, *, call: _Call[V]) -> None:
        if self._running.get(key) is call:
            del self._running[key]
        if not call.task.done():
            call.task.cancel()
        elif not call.task.cancelled():
            # Marks the error as seen where all who waited are gone.
            call.task.exception()
