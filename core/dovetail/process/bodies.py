"""Bodies of requests, bounded in size, in time, and in memory over all of them.

BodyError   the body is refused, with an HTTP status
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiohttp import web

from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError, Sentence

# How long concurrent bodies wait for memory before the oldest is given up.
_BURST_SECONDS: Final = 0.5
_TOO_LARGE: Final = 413
_TOO_SLOW: Final = 408


class BodyError(SaidError):
    """The body is refused; `status` is the HTTP status to answer."""

    def __init__(self, status: int, *, sentence: Sentence) -> None:
        self.status = status
        super().__init__(sentence)


class Bodies:
    """Reads bodies of at most `most_bytes`, each within `seconds`, and holds at most `memory` bytes of them at a time.

    Beyond that bound, the body that began first is given up: slow senders cannot keep the others out.
    """

    def __init__(self, *, most_bytes: int, memory: int, seconds: float) -> None:
        self._most_bytes = most_bytes
        self._memory = memory
        self._seconds = seconds
        self._held = 0
        self._freed = asyncio.Event()
        # In the order of their start.
        self._coming: dict[asyncio.Timeout, None] = {}

    @asynccontextmanager
    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytearray]:
        """Read the body, which counts as held until the end of the block. Raises `BodyError`."""
        if (request.content_length or 0) > self._most_bytes:
            raise _too_large(self._most_bytes)
        body = bytearray()
        try:
            await self._fill(body, request=request)
            yield body
        finally:
            self._held -= len(body)
            self._freed.set()

    async def _fill(self, body: bytearray, *, request: web.BaseRequest) -> None:
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                self._coming[deadline] = None
                try:
                    while chunk := await request.content.readany():
                        if len(body) + len(chunk) > self._most_bytes:
                            raise _too_large(self._most_bytes)
                        await self._room_for(len(chunk), besides=deadline)
                        body += chunk
                        self._held += len(chunk)
                finally:
                    del self._coming[deadline]
        except TimeoutError as error:
            raise BodyError(_TOO_SLOW, sentence=says.BODY_LATE(seconds=self._seconds)) from error

    async def _room_for(self, size: int, *, besides: asyncio.Timeout) -> None:
        while self._held + size > self._memory:
            self._give_up_oldest(besides=besides)
            self._freed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), timeout=_BURST_SECONDS)

    def _give_up_oldest(self, *, besides: asyncio.Timeout) -> None:
        now = asyncio.get_running_loop().time()
        for deadline in self._coming:
            ends = deadline.when()
            is_given_up = ends is None or ends <= now
            is_young = ends is not None and ends > now + self._seconds - _BURST_SECONDS
            if deadline is not besides and not is_given_up and not is_young:
                deadline.reschedule(now)
                return


def _too_large(most: int) -> BodyError:
    return BodyError(_TOO_LARGE, sentence=says.BODY_TOO_LARGE(most_bytes=most))
