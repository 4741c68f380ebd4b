"""What only the session of long-lived processes does: many connections at once, of which few stay."""

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.kube.aiohttp_session import AiohttpSession
from dovetail.kube.auth.connection import Connection
from dovetail.kube.http_session import Request

AT_ONCE = 5


async def test_after_a_burst_requests_use_one_connection_so_the_others_become_idle() -> None:
    ports: list[int] = []
    all_there = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        if len(ports) == AT_ONCE:
            all_there.set()
        await all_there.wait()
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/x", answer)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    session = AiohttpSession(Connection(server=str(server.make_url("")).rstrip("/")))
    asked = Request(method="GET", path="/x", query={}, headers={})
    try:
        await asyncio.gather(*(session.exchange(asked) for _ in range(AT_ONCE)))
        for _ in range(2 * AT_ONCE):
            await session.exchange(asked)
    finally:
        await session.close()
        await server.close()
    assert len(set(ports[:AT_ONCE])) == AT_ONCE
    assert len(set(ports[AT_ONCE:])) == 1
