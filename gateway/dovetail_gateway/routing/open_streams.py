"""Answers that stay open: how many a user may have, and when they end."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from dovetail.api.reasons import problems as says
from dovetail.kube.errors import KubeError
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.fair_queue import CrowdedError
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.metrics import Metrics
from dovetail_gateway.routing.problems import RequestFailedError

MOST_STREAMS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of a stream: after which silence it sends a sign of life, when rights are reviewed, how long a client may block.

    All in seconds.
    """

    heartbeat_seconds: float = 15.0
    review_seconds: float = 30.0
    send_seconds: float = 10.0


class OpenStreams:
    """Counts open streams. `clock` counts seconds since the epoch, as tokens do."""

    def __init__(self, *, metrics: Metrics, times: Times | None = None, clock: Callable[[], float] = time.time) -> None:
        self.times = times or Times()
        self.clock = clock
        self.stopping = asyncio.Event()
        self._metrics = metrics
        # By user.
        self._open: Counter[str] = Counter()

    @contextmanager
    def counted(self, who: Identity) -> Iterator[None]:
        """Count a stream of the user inside the block. Raises `RequestFailedError` if that is one too many."""
        user = who.username
        if self._open[user] >= MOST_STREAMS:
            sentence = says.TOO_MANY_STREAMS(count=MOST_STREAMS, user=user)
            raise RequestFailedError(429, reason="TooManyStreams", sentence=sentence, headers={"Retry-After": "10"})
        self._open[user] += 1
        try:
            with self._metrics.streams.track_inprogress():
                yield
        finally:
            self._open -= Counter([user])

    async def write(self, response: web.StreamResponse, *, data: bytes) -> None:
        """Send. Raises `ConnectionError` for a client that does not read."""
        try:
            async with asyncio.timeout(self.times.send_seconds):
                await response.write(data)
        except TimeoutError as error:
            raise ConnectionError("the client does not read") from error

    async def until_end(self, caller: Caller, *, may: Callable[[], Awaitable[bool]]) -> None:
        """Return when the token ends, the caller may no longer do this, or the gateway stops."""
        while not self.stopping.is_set():
            ends = caller.expires_at or float("inf")
            if ends <= self.clock():
                return
            try:
                async with asyncio.timeout(max(0.0, min(self.times.review_seconds, ends - self.clock()))):
                    await self.stopping.wait()
            except TimeoutError:
                if not await _holds(may):
                    return

    def stop(self) -> None:
        """End all streams."""
        self.stopping.set()


async def _holds(may: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await may()
    except (KubeError, CrowdedError):
        # What cannot be reviewed is not permitted; once an answer has begun, no other one can follow.
        return False
