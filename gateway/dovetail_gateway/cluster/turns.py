"""One answer at a time for each caller, so that one who asks a lot leaves room for the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0


class Turns:
    """The callers who have an answer computed or wait for one, by key."""

    def __init__(self) -> None:
        self._queues: dict[bytes, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[None]:
        """Wait until the caller's earlier blocks have ended."""
        queue = self._queues.setdefault(key, _Queue())
        queue.callers += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.callers -= 1
            if not queue.callers:
                del self._queues[key]
