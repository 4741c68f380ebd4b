"""Connections: bounded by address and by user, and none that is a user's is closed for a new one."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dovetail_gateway.app import Options
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.served import Face, serving

OF_ONE = 4
LOCAL_PROXY = (ipaddress.ip_network("127.0.0.0/8"),)


class Line:
    """One connection, on which requests follow each other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, token: str = "", path: str = "/api/v3/jobs") -> int:
        """The status; 0 if the connection is closed."""
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", *([f"Authorization: Bearer {token}"] if token else [])]
        try:
            self.writer.write("\r\n".join([*lines, "", ""]).encode())
            async with asyncio.timeout(20):
                head = await self._reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await self._reader.readexactly(int(length.split(b":")[1]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        return int(head.split()[1])

    async def is_closed(self) -> bool:
        async with asyncio.timeout(20):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def line(face: Face, *, source: str = "127.0.0.1") -> AsyncIterator[Line]:
    port = int(face.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def few(api: GatewayApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Face]:
    """A gateway with few connections: four of an address or user, twelve in all."""
    monkeypatch.setattr("dovetail_gateway.app._MOST_OF_ONE", OF_ONE)
    monkeypatch.setattr("dovetail_gateway.app._MOST_CONNECTIONS", 3 * OF_ONE)
    async with serving(api) as face:
        yield face


async def until(face: Face, number: int) -> None:
    async with asyncio.timeout(20):
        while face.made.connections.number != number:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


async def test_slow_clients_of_the_same_address_close_no_connection_of_a_user_and_keep_no_one_out(few: Face) -> None:
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(line(few, source="127.0.0.9"))
        mine = await stack.enter_async_context(line(few))
        assert await mine.ask("red-token") == 200
        slow = [await stack.enter_async_context(line(few)) for _ in range(3 * OF_ONE)]
        for each in slow:
            each.writer.write(b"GET /api/v3/jobs HT")
        new = await stack.enter_async_context(line(few))
        assert await new.ask("reader-token") == 200
        assert await mine.ask("red-token") == 200
        assert await slow[0].is_closed(), "the one of its address that has waited longest"
        assert few.made.connections.number <= OF_ONE + 3
        assert await other.ask("reader-token") == 200


async def test_slow_clients_of_many_addresses_leave_half_of_the_connections_to_users(few: Face) -> None:
    async with AsyncExitStack() as stack:
        mine = await stack.enter_async_context(line(few))
        assert await mine.ask("red-token") == 200
        for at in range(6 * OF_ONE):
            await stack.enter_async_context(line(few, source=f"127.0.0.{10 + at % 6}"))
        await until(few, 1 + 6)
        assert await mine.ask("red-token") == 200


async def test_a_user_beyond_the_bound_is_refused_and_its_open_connections_stay(few: Face) -> None:
    async with AsyncExitStack() as stack:
        own = [await stack.enter_async_context(line(few)) for _ in range(OF_ONE)]
        assert [await each.ask("red-token") for each in own] == [200] * OF_ONE
        one_more = await stack.enter_async_context(line(few))
        assert await one_more.ask("red-token") == 429
        assert await one_more.is_closed()
        other = await stack.enter_async_context(line(few))
        assert await other.ask("reader-token") == 200
        assert [await each.ask("red-token") for each in own] == [200] * OF_ONE


async def test_when_all_connections_are_users_a_new_one_is_closed(api: GatewayApiServer, few: Face) -> None:
    api.users |= {f"u-{at}": User(f"u-{at}", {"red": EDIT}) for at in range(3)}
    async with AsyncExitStack() as stack:
        own = list[Line]()
        for at in range(3 * OF_ONE):
            own.append(await stack.enter_async_context(line(few)))
            assert await own[-1].ask(f"u-{at % 3}") == 200
        new = await stack.enter_async_context(line(few))
        assert await new.ask("red-token") == 0
        assert [await each.ask(f"u-{at % 3}") for at, each in enumerate(own)] == [200] * len(own)


async def test_the_service_accounts_of_a_namespace_leave_connections_to_others(
    api: GatewayApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.app._MOST_OF_ONE", OF_ONE)
    monkeypatch.setattr("dovetail_gateway.app._MOST_CONNECTIONS", 6 * OF_ONE)
    api.users |= {f"a-{at}": User(f"system:serviceaccount:red:a{at}", {"red": EDIT}) for at in range(6)}
    async with serving(api) as face, AsyncExitStack() as stack:
        found = list[int]()
        for at in range(6 * OF_ONE):
            new = await stack.enter_async_context(line(face))
            found.append(await new.ask(f"a-{at // OF_ONE}"))
        assert found == [200] * 4 * OF_ONE + [429] * 2 * OF_ONE
        other = await stack.enter_async_context(line(face))
        assert await other.ask("red-token") == 200
        assert dict(face.made.connections._of_tenant) == {"system:serviceaccounts:red": 4 * OF_ONE, "rita": 1}


async def test_the_connections_of_a_trusted_proxy_are_those_of_many(
    api: GatewayApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.app._MOST_OF_ONE", 1)
    async with serving(api, options=Options(rates=None, proxies=LOCAL_PROXY)) as face, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(line(face)) for _ in range(3)]
        assert [await each.ask("red-token") for each in lines] == [200] * 3
        assert [await each.ask() for each in lines] == [401] * 3


async def test_a_connection_belongs_to_the_user_of_its_last_request_and_nothing_is_left_of_closed_ones(
    few: Face,
) -> None:
    connections = few.made.connections
    async with line(few) as shared, line(few) as other:
        assert [await shared.ask(token) for token in ("", "red-token", "reader-token")] == [401, 200, 200]
        assert await other.ask() == 401
        assert (dict(connections._of_user), connections._of_address.total()) == ({"rob": 1}, 1)
    await until(few, 0)
    assert (connections._of_user, connections._of_tenant, connections._of_address) == ({}, {}, {})
