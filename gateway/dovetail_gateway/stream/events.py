"""Server-sent events: a stream for each connection, from its position in the feed.

delta     what changed; its id is `EPOCH:SEQ`
resync    take a new snapshot: the position is kept no more, or what the caller may see has changed
bye       the stream ends, with the reason
"""

import asyncio
import re
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.api.access_reviews import Act
from dovetail.api.reasons import problems as says
from dovetail.kube.errors import KubeError
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.fair_queue import CrowdedError
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.open_streams import OpenStreams
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Call
from dovetail_gateway.stream.feed import Feed

_ID: Final = re.compile(r"([0-9a-f]{8}):([0-9]{1,15})")
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class EventStreams:
    """Opens streams of the feed's changes."""

    def __init__(self, feed: Feed, *, cache: ClusterCache, reviews: Reviews, streams: OpenStreams) -> None:
        self.feed = feed
        self.cache = cache
        self.streams = streams
        self._reviews = reviews

    async def serve(self, request: web.Request, *, call: Call[Any, Any, Any]) -> web.StreamResponse:
        """Stream until the token or the rights end, the client leaves, or the gateway stops."""
        caller, sees, seq = call.caller, call.sees, self._position(request)
        with self.streams.counted(call.who):
            if not await self.may_watch(caller, sees=sees):
                raise RequestFailedError(
                    403, reason="Forbidden", sentence=says.MAY_NOT(verb="watch", resource="gpujobs.dovetail.dev")
                )
            response = web.StreamResponse(headers=_HEADERS)
            with suppress(ConnectionError):
                await response.prepare(request)
                await _Stream(self, response=response, caller=caller, sees=sees, seq=seq).run()
        return response

    async def may_watch(self, caller: Caller, *, sees: Visibility) -> bool:
        """Whether the caller may watch all that it sees. Raises `KubeError`."""
        namespaces = [""] if sees.namespaces is None else sorted(sees.namespaces)
        acts = [Act(verb="watch", namespace=namespace) for namespace in namespaces]
        allowed = [await self._reviews.may(caller, act=act, oldest=self.streams.times.review_seconds) for act in acts]
        return bool(allowed) and all(allowed)

    def _position(self, request: web.Request) -> int:
        """Where the client was, by Last-Event-ID or `since`; -1 for a position in another process's feed."""
        text = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        if not text:
            return self.feed.seq
        found = _ID.fullmatch(text)
        if found is None:
            raise RequestFailedError(422, reason="Invalid", sentence=says.SINCE_SNAPSHOT(value=text[:64]))
        return int(found[2]) if found[1] == self.feed.epoch else -1


class _Stream:
    """One open stream: a position in the feed, so a slow client costs no memory."""

    def __init__(
        self, streams: EventStreams, *, response: web.StreamResponse, caller: Caller, sees: Visibility, seq: int
    ) -> None:
        self._events = streams
        self._open = streams.streams
        self._response = response
        self._caller = caller
        self._sees = sees
        self._seq = seq
        self._review_at = self._open.clock() + self._open.times.review_seconds

    async def run(self) -> None:
        """Send until the end."""
        await self._write(b"retry: 2000\n\n")
        while not (why := await self._end()):
            if not await self._send_new():
                await self._wait()
        await self._send("bye", data=msgspec.json.encode({"why": why}))

    async def _end(self) -> str:
        """Why the stream ends; empty while it goes on."""
        now, ends = self._open.clock(), self._caller.expires_at
        if self._open.stopping.is_set():
            return "the gateway stops"
        if ends is not None and ends <= now:
            return "the token has expired"
        return "" if now < self._review_at else await self._review()

    async def _review(self) -> str:
        """Ask again what the caller may see; why the stream ends, or empty."""
        self._review_at = self._open.clock() + self._open.times.review_seconds
        try:
            sees = await self._events.cache.seen_by(self._caller, oldest=self._open.times.review_seconds)
            permitted = await self._events.may_watch(self._caller, sees=sees)
        except (KubeError, CrowdedError) as error:
            return f"your rights cannot be reviewed: {error}"
        if not permitted:
            return "you may not watch gpujobs.dovetail.dev any more"
        if sees != self._sees:
            self._sees = sees
            await self._resync()
        return ""

    async def _send_new(self) -> bool:
        """Send what is new; False if there is nothing."""
        changes = self._events.feed.since(self._seq)
        if changes is None:
            await self._resync()
            return True
        for change in changes:
            self._seq = change.seq
            if data := self._events.feed.delta(change, sees=self._sees):
                await self._send("delta", data=data)
        return bool(changes)

    async def _resync(self) -> None:
        self._seq = self._events.feed.seq
        await self._send("resync", data=b"{}")

    async def _send(self, event: str, *, data: bytes) -> None:
        head = f"event: {event}\nid: {self._events.feed.epoch}:{self._seq}\ndata: ".encode()
        await self._write(head + data + b"\n\n")

    async def _write(self, data: bytes) -> None:
        await self._open.write(self._response, data=data)

    async def _wait(self) -> None:
        """Return at the next delta; after a while of silence, send a sign of life."""
        ends = [self._review_at, self._caller.expires_at or float("inf")]
        seconds = max(0.0, min(self._open.times.heartbeat_seconds, *(end - self._open.clock() for end in ends)))
        try:
            async with asyncio.timeout(seconds):
                await self._events.feed.wait()
        except TimeoutError:
            await self._write(b": alive\n\n")
