"""Protection against slow or hostile clients: deadlines, and a bound on open connections.

aiohttp limits neither the time that a request's line and headers may take, nor the number of connections: 200 clients
that send one byte a second would stay connected indefinitely.
"""

import asyncio
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.typedefs import Handler, Middleware

from dovetail import logs
from dovetail.config.errors import ConfigError

# From the first byte of a request to the end of its headers.
_HEADERS_SECONDS: Final = 5.0
# Go's client closes an idle connection after 90 s. The server waits longer, because closing first would lose a request
# that is already in transit. New connections are idle too: Go dials ahead, and keeps what it did not need.
_IDLE_SECONDS: Final = 120.0
_HANDSHAKE_SECONDS: Final = 5.0
# API servers use a few connections each. A connection may cost some 64 KiB.
_MOST_CONNECTIONS: Final = 256
_LINGER_SECONDS: Final = 1.0
_ACCEPT_AGAIN_SECONDS: Final = 1.0
_BACKLOG: Final = 100
_LOG_AGAIN_SECONDS: Final = 60.0
_READ_BYTES: Final = 16 << 10
_HEADER_BYTES: Final = 8190
_LONG: Final = "the request line or a header is too long"
_NO_HTTP: Final = "this is no HTTP/1.1 request"
log = logs.get_logger("dovetail.connections")


class _Seldom:
    """Logs what a client can cause as often as it likes: once a minute, with how often it was left out since."""

    def __init__(self) -> None:
        # By event.
        self._at: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def info(self, event: str, **values: str) -> None:
        now = time.monotonic()
        if now - self._at.get(event, -math.inf) < _LOG_AGAIN_SECONDS:
            self._left_out[event] += 1
            return
        self._at[event] = now
        log.info(event, **values, left_out=self._left_out.pop(event, 0))


_seldom = _Seldom()


class Refuse(Protocol):
    """Makes the answer to what is no HTTP request."""

    def __call__(self, status: int, *, sentence: str) -> web.Response:
        """The answer of this status."""


def plainly(status: int, *, sentence: str) -> web.Response:
    """The sentence as text."""
    return web.Response(status=status, text=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many connections may be open.

    - `most`: in all
    - `of_address`: of one address, those of which no user is known; all such addresses together get half of `most`
    - `of_user`: of one user, once `Connections.belong` says whose they are
    - `of_tenant`: of all users of one tenant
    - `is_proxy`: whether an address is that of a proxy, whose connections are those of many users
    - `tenant_of`: the tenant of a user
    """

    most: int = _MOST_CONNECTIONS
    of_address: int | None = None
    of_user: int | None = None
    of_tenant: int | None = None
    is_proxy: Callable[[str], bool] = lambda _address: False
    tenant_of: Callable[[str], str] = lambda user: user


class Connections:
    """The open connections, by their transport.

    A connection of which no user is known makes room for a new one if it has waited longest for its client: it has lost
    nothing by that. One of a known user never does.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        # In the order in which they began to wait for their client, so that the first has waited longest.
        self._waiting: dict[asyncio.BaseTransport, _Connection] = {}
        self._answering: dict[asyncio.BaseTransport, _Connection] = {}
        # By address, where no user is known and it is no proxy's; by user, and by tenant.
        self._of_address: Counter[str] = Counter()
        self._of_user: Counter[str] = Counter()
        self._of_tenant: Counter[str] = Counter()

    @property
    def number(self) -> int:
        """How many are open."""
        return len(self._waiting) + len(self._answering)

    @property
    def most_handshakes(self) -> int:
        """How many more may be in their TLS handshake. A client that is not slow takes milliseconds for its own."""
        return min(self._bounds.most, _MOST_CONNECTIONS)

    @contextmanager
    def answering(self, request: web.BaseRequest) -> Iterator[None]:
        """Suspend the connection's deadlines inside the block, where the caller sets its own."""
        transport = request.transport
        found = self._waiting.pop(transport, None) if transport is not None else None
        if transport is None or found is None:
            yield
            return
        found.expect_within(None)
        self._answering[transport] = found
        try:
            yield
        finally:
            if self._answering.pop(transport, None):
                self._waiting[transport] = found
                found.expect_within(_IDLE_SECONDS)

    def belong(self, request: web.BaseRequest, *, user: str) -> bool:
        """Count the connection of a request that is being answered for this user; False if that is one too many."""
        transport = request.transport
        found = None if transport is None else self._answering.get(transport)
        if found is None or found.user == user or self._bounds.is_proxy(found.address):
            return True
        bounds, tenant = self._bounds, self._bounds.tenant_of(user)
        if bounds.of_user is not None and self._of_user[user] >= bounds.of_user:
            return False
        if bounds.of_tenant is not None and self._of_tenant[tenant] >= bounds.of_tenant:
            return False
        self._uncount(found)
        found.user = user
        self._of_user[user] += 1
        self._of_tenant[tenant] += 1
        return True

    def add(self, connection: "_Connection", *, transport: asyncio.Transport) -> None:
        """Add a connection. Beyond a bound, close another one that waits for its client, or else this one."""
        if not self._has_room(connection.address):
            _seldom.info("too many connections: a new one is closed", address=connection.address)
            connection.end()
            return
        self._waiting[transport] = connection
        if not self._bounds.is_proxy(connection.address):
            self._of_address[connection.address] += 1

    def remove(self, transport: asyncio.BaseTransport) -> None:
        """Remove a closed connection."""
        found = self._waiting.pop(transport, None) or self._answering.pop(transport, None)
        if found is not None:
            self._uncount(found)

    def _has_room(self, address: str) -> bool:
        """Whether one more connection of the address may be open, once one that is no user's has made room."""
        bounds = self._bounds
        if bounds.of_address is not None and not bounds.is_proxy(address):
            if self._of_address[address] >= bounds.of_address and not self._close_one(address):
                return False
            if self._of_address.total() >= bounds.most // 2 and not self._close_one():
                return False
        return self.number < bounds.most or self._close_one()

    def _close_one(self, address: str | None = None) -> bool:
        """Close the connection that has waited longest for its client and is no user's; False if there is none."""
        for transport, each in self._waiting.items():
            if not each.user and address in {None, each.address}:
                _seldom.info("too many connections: the one that waits longest is closed", address=each.address)
                del self._waiting[transport]
                self._uncount(each)
                each.end()
                return True
        return False

    def _uncount(self, connection: "_Connection") -> None:
        user, counted = connection.user, [(self._of_address, connection.address)]
        if user:
            counted = [(self._of_user, user), (self._of_tenant, self._bounds.tenant_of(user))]
        for counter, key in counted:
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]


def answered(connections: Connections) -> Middleware:
    """Suspend the deadlines of a connection while one of its requests is answered."""

    @web.middleware
    async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
        with connections.answering(request):
            return await handler(request)

    return serve


class _Connection(asyncio.Protocol):
    """Passes a connection's events to aiohttp, and aborts it if its client is too slow."""

    def __init__(self, inner: asyncio.Protocol, *, among: Connections) -> None:
        self._inner = inner
        self._among = among
        self._transport: asyncio.Transport | None = None
        self.address = ""
        # Empty until it is known whose connection it is.
        self.user = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._request_began = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.expect_within(_IDLE_SECONDS)
        self._inner.connection_made(transport)
        self._among.add(self, transport=self._transport)

    def data_received(self, data: bytes) -> None:
        # The first byte of a request after idle time. While a request is answered, the handler sets the deadlines.
        if not self._request_began and self._deadline is not None:
            self.expect_within(_HEADERS_SECONDS)
            self._request_began = True
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._transport is not None:
            self._among.remove(self._transport)
        self._inner.connection_lost(exc)

    def expect_within(self, seconds: float | None) -> None:
        """Abort the connection unless its client acts within `seconds`; None suspends the deadline."""
        self._cancel()
        if seconds is not None and self._transport is not None:
            self._request_began = False
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Abort the connection, and discard what is not sent yet."""
        self._cancel()
        if self._transport is not None:
            self._transport.abort()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _RequestHandler(web.RequestHandler):
    """aiohttp's handler of a connection, but what is no HTTP request gets an answer of the server's own form.

    aiohttp would also log the bytes that it could not read, and a header that is too long may be a token.
    """

    def __init__(self, server: web.Server, *, refuse: "Refuse", **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._refuse = refuse

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what aiohttp cannot read."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        _seldom.info("a request cannot be read", error=type(exc).__name__)
        response = self._refuse(status, sentence=_LONG if isinstance(exc, LineTooLong) else _NO_HTTP)
        response.force_close()
        return response


class _Listener:
    """Accepts connections, and bounds those in their TLS handshake, which are in no `Connections` yet.

    asyncio's own server starts a handshake with each client that connects, and counts none.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        connected: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        most_handshakes: int,
    ) -> None:
        self._listener = listener
        self._connected = connected
        self._tls = tls
        self._most = most_handshakes
        # With the addresses of the clients, in the order in which they connected.
        self._handshakes: dict[asyncio.Task[None], str] = {}

    async def run(self) -> None:
        """Accept connections until cancelled, and end the handshakes that are not over then."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(self._listener)
                except ConnectionAbortedError:  # the client has left before it was accepted
                    await asyncio.sleep(0)
                    continue
                except OSError as error:  # such as: no more files can be opened
                    log.warning("no connection can be accepted", problem=error.strerror)
                    await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                    continue
                self._make_room()
                task = loop.create_task(self._open(accepted))
                self._handshakes[task] = str(peer[0])
                task.add_done_callback(partial(self._opened, accepted=accepted))
                # While more clients wait, an accept does not suspend.
                await asyncio.sleep(0)
        finally:
            for task in self._handshakes:
                task.cancel()

    async def _open(self, accepted: socket.socket) -> None:
        limit = None if self._tls is None else _HANDSHAKE_SECONDS
        with suppress(OSError):  # the handshake failed, or took too long
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connected, accepted, ssl=self._tls, ssl_handshake_timeout=limit
            )

    def _opened(self, task: asyncio.Task[None], *, accepted: socket.socket) -> None:
        self._handshakes.pop(task, None)
        if task.cancelled():
            accepted.close()

    def _make_room(self) -> None:
        """Close the oldest one of the address that has most handshakes, if one more would be too many."""
        if len(self._handshakes) < self._most:
            return
        ((address, _),) = Counter(self._handshakes.values()).most_common(1)
        _seldom.info("too many handshakes: the oldest one of an address is closed", address=address)
        oldest = next(task for task, of in self._handshakes.items() if of == address)
        del self._handshakes[oldest]
        oldest.cancel()


@asynccontextmanager
async def listening(
    app: web.Application,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    connections: Connections,
    most_header_bytes: int = _HEADER_BYTES,
    refuse: Refuse = plainly,
) -> AsyncIterator[int]:
    """Serve `app` inside the block, over TLS if `tls` is set, and yield the port, which matters for port 0.

    Each handler runs inside `connections.answering`. A header may have `most_header_bytes`. What is no HTTP request
    gets the answer of `refuse`. Running requests get 5 s to end. Raises `ConfigError` if the address cannot be bound.
    """
    runner = web.AppRunner(app, shutdown_timeout=5.0, handler_cancellation=True)
    await runner.setup()
    try:
        served = runner.server
        assert served is not None

        def connected() -> _Connection:
            handler = _RequestHandler(
                served,
                refuse=refuse,
                access_log=None,
                # The size of a decompressed body is known too late, and no client needs to compress requests so small.
                auto_decompress=False,
                keepalive_timeout=_IDLE_SECONDS,
                lingering_time=_LINGER_SECONDS,
                read_bufsize=_READ_BYTES,
                max_field_size=most_header_bytes,
            )
            return _Connection(handler, among=connections)

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError("command line", problem=f"cannot listen on {host}:{port}: {error.strerror}") from error
        bound.setblocking(False)
        listener = _Listener(bound, connected=connected, tls=tls, most_handshakes=connections.most_handshakes)
        accepting = asyncio.create_task(listener.run())
        try:
            yield int(bound.getsockname()[1])
        finally:
            accepting.cancel()
            await asyncio.wait({accepting})
            bound.close()
    finally:
        await runner.cleanup()
