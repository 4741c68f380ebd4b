"""kopf runs the operator: the work begins and ends with it, and nothing of the work is cancelled."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from dovetail.kube.auth.connection import Connection
from dovetail_operator import handlers
from tests.background import free_ports
from tests.core.kube.api import Answer, Api

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def connection(api: Api) -> Connection:
    """To an API server that answers what kopf asks at its start."""
    api.answer("GET /api", Answer(body={"versions": []}, headers=JSON))
    api.answer("GET /apis", Answer(body={"groups": []}, headers=JSON))
    return Connection(server=api.url)


class Work:
    """Runs until it is told to stop, and then needs a moment to end well."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.stop = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended_well = False
        self._error = error

    async def __call__(self) -> None:
        self.begun.set()
        if self._error is not None:
            raise self._error
        helper = asyncio.create_task(self.stop.wait())
        await helper
        await asyncio.sleep(0.05)
        self.ended_well = True

    def process(self, connection: Connection) -> handlers.Process:
        return handlers.Process(connection=connection, work=self, stop=self.stop, said=lambda: {"lease": "ours"})


@pytest.mark.parametrize(
    "end",
    [lambda work: work.stop.set(), lambda _work: os.kill(os.getpid(), signal.SIGTERM)],
    ids=["told to stop", "SIGTERM"],
)
async def test_the_work_ends_in_its_own_time(end: Callable[[Work], None], connection: Connection) -> None:
    work = Work()
    running = asyncio.create_task(handlers.run(work.process(connection)))
    await work.begun.wait()
    # kopf takes the signals once its own tasks have begun.
    await asyncio.sleep(0.05)
    end(work)
    await asyncio.wait_for(running, 20)
    assert work.ended_well


async def test_what_ends_the_work_ends_the_process(connection: Connection) -> None:
    with pytest.raises(RuntimeError, match="no database"):
        await asyncio.wait_for(handlers.run(Work(error=RuntimeError("no database")).process(connection)), 20)


async def test_the_work_ends_well_when_kopf_fails(api: Api) -> None:
    # What kopf asks for at its start is answered by something that is no API server.
    api.answer("GET /api", Answer(body={"versions": []}, headers=JSON))
    api.answer("GET /apis", Answer(body={}, headers=JSON))
    work = Work()
    with pytest.raises(KeyError):
        await asyncio.wait_for(handlers.run(work.process(Connection(server=api.url))), 20)
    assert work.ended_well


async def test_kopf_answers_the_liveness_probe(connection: Connection) -> None:
    work, (port,) = Work(), free_ports(count=1)
    running = asyncio.create_task(handlers.run(work.process(connection), liveness_port=port))
    assert json.loads(await answered(port)) == {"operator": {"lease": "ours"}}
    work.stop.set()
    await asyncio.wait_for(running, 20)


async def answered(port: int) -> str:
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/healthz") as response:
                    assert response.status == 200
                    return await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)


async def login(connection: Connection) -> handlers.kopf.ConnectionInfo:
    handler: Callable[..., Awaitable[handlers.kopf.ConnectionInfo]] = handlers.login
    return await handler(memo=Work().process(connection))


async def test_kopf_logs_in_as_the_connection_says() -> None:
    found = await login(Connection(server="https://api:6443", namespace="gpu", token="secret", insecure=True))
    assert (found.server, found.default_namespace, found.token, found.insecure) == (
        "https://api:6443",
        "gpu",
        "secret",
        True,
    )
    assert found.expiration is None


async def test_a_token_that_changes_is_read_again() -> None:
    found = await login(Connection(server="https://api:6443", token_source=lambda: "fresh"))
    assert found.token == "fresh"
    assert found.expiration is not None


def test_kopf_follows_no_objects() -> None:
    # Each body would become dictionaries: 24 MiB for a template of 1 MiB.
    followed = handlers.registry._watching.get_all_handlers() or handlers.registry._changing.get_all_handlers()
    assert not followed
