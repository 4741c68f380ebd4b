"""What only the session of long-lived processes does: many connections at once, of which few stay."""

import asyncio
import errno
import socket
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.kube.aiohttp_session import AiohttpSession
from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import Unreachable
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


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 6443)"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "[Errno -2] Name or service not known"),
        (OSError("no number"), "no number"),
    ],
)
async def test_a_failed_connection_is_told_in_few_words(
    monkeypatch: pytest.MonkeyPatch, error: OSError, says: str
) -> None:
    async def fail(*_args: object, **_options: object) -> None:
        raise aiohttp.ClientConnectorError(Mock(ssl=False, host="10.0.0.1", port=6443), error)

    session = AiohttpSession(Connection(server="http://10.0.0.1:6443"))
    monkeypatch.setattr(aiohttp.ClientSession, "_request", fail)
    try:
        with pytest.raises(Unreachable) as failed:
            await session.exchange(Request(method="GET", path="/x", query={}, headers={}))
    finally:
        await session.close()
    assert str(failed.value).count(says) == 1
