"""A client of routes that a test serves on loopback."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client


@asynccontextmanager
async def client_of(routes: Iterable[web.AbstractRouteDef]) -> AsyncIterator[Client]:
    """Serve the routes as an API server, for as long as the client is open."""
    app = web.Application()
    app.add_routes(routes)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    try:
        async with Client(Connection(server=str(server.make_url("")).rstrip("/"))) as client:
            yield client
    finally:
        await server.close()
