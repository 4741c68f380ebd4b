"""Deadlines of connections, by a clock of milliseconds."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from errno import ECONNABORTED
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import web
from structlog.testing import capture_logs

from dovetail.process import connections
from dovetail.process.connections import Bounds, Connections, answered, listening
from tests.authority import Authority
from tests.background import eventually

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Run = Callable[[Coroutine[Any, Any, None]], None]
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEADERS_SECONDS", 0.05)


async def answer(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def talk(*said: bytes, pause: float = 0.2) -> bytes:
    """What the server answers to a client that pauses before each thing that it says."""
    known = Connections()
    app = web.Application(middlewares=[answered(known)])
    app.add_routes([web.get("/", answer)])
    async with listening(app, host="127.0.0.1", port=0, tls=None, connections=known) as port:
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


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of its client."""
    authority = Authority()
    folder = authority.sign("localhost").write(tmp_path, authority=authority.certificate)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return server, ssl.create_default_context(cadata=authority.certificate.decode())


async def served(port: int, *, tls: ssl.SSLContext) -> bytes:
    """The first line of the answer to a request over TLS."""
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost")
        writer.write(GET)
        try:
            return await reader.readline()
        finally:
            writer.close()


async def open_until(clients: list[Client], *, number: int) -> None:
    """Wait until that many have not been closed by the server."""
    await eventually(lambda: sum(not each.at_eof() and each.exception() is None for each, _ in clients) <= number)


# The programs run on uvloop.
on_each_loop = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@on_each_loop
def test_unfinished_handshakes_are_bounded_and_keep_no_one_out(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    for limit in ("_HANDSHAKE_SECONDS", "_HEADERS_SECONDS"):
        monkeypatch.setattr(connections, limit, 600.0)
    app, known = web.Application(), Connections(Bounds(most=16))
    app.add_routes([web.get("/", answer)])

    async def flooded() -> None:
        async with listening(app, host="127.0.0.1", port=0, tls=tls[0], connections=known) as port:
            idle = await asyncio.open_connection("127.0.0.1", port, ssl=tls[1], server_hostname="localhost")
            others = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))]
            hostile = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            await open_until(hostile, number=15)
            # Neither another address nor who has finished makes room for them.
            assert await served(port, tls=tls[1]) == b"HTTP/1.1 200 OK\r\n"
            idle[1].write(GET)
            assert await idle[0].readline() == b"HTTP/1.1 200 OK\r\n"
            assert not others[0][0].at_eof()
            for _, writer in (idle, *others, *hostile):
                writer.close()

    run(flooded())
    assert known.number == 0


@on_each_loop
def test_an_unfinished_handshake_ends(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(connections, "_HANDSHAKE_SECONDS", 0.05)
    app = web.Application()

    async def slow() -> None:
        async with listening(app, host="127.0.0.1", port=0, tls=tls[0], connections=Connections()) as port:
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            clients[1][1].write(b"\x16\x03\x01\x02\x00\x01")
            clients[2][1].write(b"GET / HTTP/1.1\r\n")
            await open_until(clients, number=0)
            for _, writer in clients:
                writer.close()

    run(slow())


async def test_a_client_that_leaves_before_it_is_accepted_keeps_no_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_ACCEPT_AGAIN_SECONDS", 600.0)
    loop, left = asyncio.get_running_loop(), [ConnectionAbortedError(ECONNABORTED, "it has left")] * 3
    accept = loop.sock_accept

    async def sock_accept(listener: socket.socket) -> tuple[socket.socket, Any]:
        if left:
            raise left.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    assert (await talk(GET)).startswith(b"HTTP/1.1 200")


def test_what_a_client_causes_over_and_over_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, seldom = [100.0], connections._Seldom()
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    with capture_logs() as said:
        for _ in range(1000):
            seldom.info("too many", address="::1")
        seldom.info("unreadable", error="LineTooLong")
        now[0] += 61
        seldom.info("too many", address="::2")
    assert [(each["event"], each.get("address"), each["left_out"]) for each in said] == [
        ("too many", "::1", 0),
        ("unreadable", None, 0),
        ("too many", "::2", 999),
    ]


async def test_a_client_that_has_dialled_ahead_sends_its_first_request_later() -> None:
    assert (await talk(GET)).startswith(b"HTTP/1.1 200")


async def test_a_request_that_has_begun_must_end_its_headers() -> None:
    assert await talk(b"GET / HT", b"TP/1.1\r\n") == b""


async def test_a_request_that_comes_byte_by_byte_has_no_more_time() -> None:
    assert await talk(*(GET[at : at + 1] for at in range(len(GET))), pause=0.01) == b""


async def test_a_later_request_of_a_connection_must_end_its_headers_too() -> None:
    first = GET.replace(b"Connection: close\r\n", b"")
    answers = await talk(first, b"GET / HT")
    assert answers.count(b"HTTP/1.1 ") <= 1
