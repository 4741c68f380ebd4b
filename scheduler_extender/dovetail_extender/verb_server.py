"""Where the verbs are served, and to whom: plain HTTP on loopback, or mutual TLS for a kube-scheduler elsewhere.

Without TLS, the verbs are for every program that reaches loopback. A page in a browser is refused: `no_pages`.

With TLS, the clients are those whose certificate has one of the allowed names. The handshake proves that a CA of
`ca.crt` has signed the certificate. That CA may sign for others too, so each request also compares the names. A
connection can outlive its certificate, so each request compares the time too.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dovetail.logs import get_logger
from dovetail.process import connections, serving
from dovetail.process.certificate import Certificate
from dovetail.process.connections import Connections
from dovetail.process.hosts import Hosts
from dovetail_extender.metrics import Metrics
from dovetail_extender.server import MAX_BODY_BYTES

log = get_logger(__name__)


def names_in(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The common name and the alternative names of a certificate, as Python's `getpeercert()` gives it."""
    for part in certificate.get("subject", ()):
        yield from (value for key, value in part if key == "commonName")
    yield from (value for _, value in certificate.get("subjectAltName", ()))


def problem_of(certificate: Mapping[str, Any] | None, *, allowed: Collection[str], now: float) -> str:
    """Why the client of this certificate is refused; empty if it is allowed."""
    if not certificate:
        return "the client has shown no certificate"
    names = sorted(set(names_in(certificate)))
    if not set(names) & set(allowed):
        found = ", ".join(names) or "no name"
        return f"the client's certificate has {found}, but allowed is {', '.join(sorted(allowed))}"
    if now >= ssl.cert_time_to_seconds(certificate["notAfter"]):
        return f"the client's certificate expired at {certificate['notAfter']}"
    return ""


def no_pages(hosts: Hosts) -> Middleware:
    """Refuse with status 403 what a page of a web site could send: another Host than `hosts`, or an Origin."""

    @web.middleware
    async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if hosts.admits(host) and origin is None:
            return await handler(request)
        said = f"the Host header is {host!r}" if origin is None else f"the request comes from a page of {origin!r}"
        log.warning("client refused", peer=str(request.remote), problem=said)
        return web.Response(status=403, text=f"{said}: only kube-scheduler calls this port\n")

    return serve


def only_clients(
    *,
    allowed: Collection[str],
    connections: Connections,
    metrics: Metrics,
    now: Callable[[], float] = time.time,
) -> Middleware:
    """Refuse requests of other clients with status 403, and close their connection."""

    @web.middleware
    async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
        with connections.answering(request):
            peer = request.transport.get_extra_info("peercert") if request.transport else None
            if problem := problem_of(peer, allowed=allowed, now=now()):
                metrics.refused_clients.inc()
                log.warning("client refused", peer=str(request.remote), problem=problem)
                response = web.Response(status=403, text=f"{problem}\n")
                response.force_close()
                return response
            if peer:
                metrics.client_expiry.set(ssl.cert_time_to_seconds(peer["notAfter"]))
            # A bind ends as it began, also when its caller has gone.
            return await asyncio.shield(asyncio.ensure_future(handler(request)))

    return serve


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbServer:
    """An address, and with a certificate the names of the clients that may use it."""

    host: str
    port: int
    certificate: Certificate | None
    names: Sequence[str]
    connections: Connections = field(default_factory=Connections)

    def application(self, metrics: Metrics) -> web.Application:
        """An application for the verbs, for allowed clients with a certificate, or for all clients but pages."""
        if self.certificate is None:
            return web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[no_pages(Hosts([self.host]))])
        only = only_clients(allowed=self.names, connections=self.connections, metrics=metrics)
        return web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[only])

    @asynccontextmanager
    async def listening(self, app: web.Application) -> AsyncIterator[int]:
        """Serve `app` inside the block, and yield the port. Raises `ConfigError`."""
        if self.certificate is None:
            async with serving.listening(app, host=self.host, port=self.port) as port:
                yield port
            return
        # Others than kube-scheduler may connect: deadlines and a bound on connections.
        async with connections.listening(
            app, host=self.host, port=self.port, tls=self.certificate.context, connections=self.connections
        ) as port:
            yield port
