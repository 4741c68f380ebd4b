"""What the proxy does to connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tools.soak.proxy import DELAY_SECONDS, Proxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients:
    """Connections to a proxy, which end with the test."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, port: int) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        await self.proxy.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    """Clients of a proxy in front of a server that sends back what it gets."""
    handlers = set[asyncio.Task[object] | None]()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        with suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = Clients(Proxy(port=server.sockets[0].getsockname()[1]))
    yield made
    await made.close()
    server.close()
    await asyncio.gather(*filter(None, handlers))


@pytest.fixture
async def port(clients: Clients) -> int:
    """Where the proxy listens."""
    url = await clients.proxy.start()
    return int(url.rpartition(":")[2])


async def said(streams: Streams, text: bytes) -> bytes:
    reader, writer = streams
    writer.write(text)
    async with asyncio.timeout(10):
        return await reader.read(1000)


async def test_without_a_fault_everything_passes(clients: Clients, port: int) -> None:
    assert await said(await clients.connect(port), b"hello") == b"hello"


async def test_a_delay_delays_and_loses_nothing(clients: Clients, port: int) -> None:
    streams = await clients.connect(port)
    clients.proxy.set_fault("delay")
    before = asyncio.get_running_loop().time()
    assert await said(streams, b"hello") == b"hello"
    assert asyncio.get_running_loop().time() - before >= 2 * DELAY_SECONDS


async def test_a_drop_ends_open_connections_and_new_ones_until_it_ends(clients: Clients, port: int) -> None:
    reader, writer = await clients.connect(port)
    assert await said((reader, writer), b"hello") == b"hello"
    clients.proxy.set_fault("drop")
    with suppress(ConnectionError):
        assert await reader.read(1) == b""
    again = await clients.connect(port)
    with suppress(ConnectionError):
        assert await again[0].read(1) == b""
    clients.proxy.set_fault("")
    assert await said(await clients.connect(port), b"hello") == b"hello"


async def test_what_stalls_comes_after_the_stall(clients: Clients, port: int) -> None:
    streams = await clients.connect(port)
    assert await said(streams, b"one") == b"one"
    clients.proxy.set_fault("stall")
    streams[1].write(b"two")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await streams[0].read(1000)
    clients.proxy.set_fault("")
    async with asyncio.timeout(10):
        assert await streams[0].read(1000) == b"two"


async def test_a_server_that_is_away_closes_the_connection() -> None:
    clients = Clients(Proxy(port=1))
    url = await clients.proxy.start()
    reader, _ = await clients.connect(int(url.rpartition(":")[2]))
    with suppress(ConnectionError):
        assert await reader.read(1) == b""
    await clients.close()
