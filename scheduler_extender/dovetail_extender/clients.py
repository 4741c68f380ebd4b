"""Who may use the verbs: over mutual TLS, clients whose certificate has one of the allowed names.

Without TLS, the verbs are on loopback, for every program that reaches it. A page in a browser is refused: `no_pages`.

The handshake proves that a CA of `ca.crt` has signed the certificate. That CA may sign for others too, so each request
also compares the names. A connection can outlive its certificate, so each request compares the time too.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dovetail.logs import get_logger
from dovetail.process.connections import Connections
from dovetail.process.hosts import Hosts
from dovetail_extender.metrics import Metrics

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


def only(
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
