"""Deadlines of connections, by a clock of milliseconds."""

import asyncio

import pytest
from aiohttp import web

from dovetail.process import connections
from dovetail.process.connections import Connections, listening

GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEADERS_SECONDS", 0.05)


async def answer(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def talk(*said: bytes, pause: float = 0.2) -> bytes:
    """What the server answers to a client that pauses before each thing that it says."""
    app = web.Application()
    app.add_routes([web.get("/", answer)])
    async with listening(app, host="127.0.0.1", port=0, tls=None, connections=Connections()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in said:
            await asyncio.sleep(pause)
            writer.write(part)
        try:
            async with asyncio.timeout(10):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def test_a_client_that_has_dialled_ahead_sends_its_first_request_later() -> None:
    assert (await talk(GET)).startswith(b"HTTP/1.1 200")


async def test_a_request_that_has_begun_must_end_its_headers() -> None:
    assert await talk(b"GET / HT", b"TP/1.1\r\n") == b""
