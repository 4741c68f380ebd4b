"""Where the verbs are served: as plain HTTP on loopback, or over mutual TLS for a kube-scheduler elsewhere."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from dovetail.process import connections, serving
from dovetail.process.certificate import Certificate
from dovetail.process.connections import Connections
from dovetail.process.hosts import Hosts
from dovetail_extender import clients
from dovetail_extender.metrics import Metrics
from dovetail_extender.server import MAX_BODY_BYTES


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
            return web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[clients.no_pages(Hosts([self.host]))])
        only = clients.only(allowed=self.names, connections=self.connections, metrics=metrics)
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
