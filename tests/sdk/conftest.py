"""A gateway over a real port for both faces of the SDK: each test runs with asyncio and without."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from dovetail.sdk import AsyncClient, AsyncTaskClient, Client, TaskClient
from dovetail_gateway.app import Options
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.conftest import api
from tests.gateway.served import Face, serving

__all__ = ["api"]
RED = Options(rates=None, allocation_namespace="red")


@pytest.fixture
async def gateway(api: GatewayApiServer) -> AsyncIterator[Face]:
    """A gateway whose allocations and tasks are in the namespace `red`."""
    async with serving(api, options=RED) as started:
        yield started


@dataclass(frozen=True)
class Side:
    """One face of the SDK: its classes, and how a test calls it while the gateway runs in the same loop."""

    client_class: type[AsyncClient] | type[Client]
    tasks_class: type[AsyncTaskClient] | type[TaskClient]
    url: str = ""

    def client(self, **options: Any) -> Any:
        return self.client_class(self.url, **{"token": "red-token", "namespace": "red", **options})

    def tasks(self, **options: Any) -> Any:
        return self.tasks_class(self.url, **{"token": "red-token", **options})

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of a method, in a thread where it blocks."""
        if inspect.iscoroutinefunction(function):
            return await function(*args, **options)
        return await asyncio.to_thread(function, *args, **options)

    async def all(self, made: Any) -> list[Any]:
        """Everything that an iterator of either kind gives."""
        if hasattr(made, "__aiter__"):
            return [each async for each in made]
        return await asyncio.to_thread(list, made)

    @asynccontextmanager
    async def inside(self, context: Any) -> AsyncIterator[Any]:
        """The inside of a `with` block of either kind."""
        if hasattr(context, "__aenter__"):
            async with context as entered:
                yield entered
            return
        entered = await asyncio.to_thread(context.__enter__)
        try:
            yield entered
        except BaseException as error:
            await asyncio.to_thread(context.__exit__, type(error), error, error.__traceback__)
            raise
        else:
            await asyncio.to_thread(context.__exit__, None, None, None)


async def until(holds: Callable[[], Any]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - the cache and the API server have no event
            await asyncio.sleep(0.005)


DEVICES = [
    {"worker": 0, "node": "b", "index": at, "uuid": f"b-{at}", "shareMilli": 1000, "memoryMiB": 32768}
    for at in range(2)
]


def reservations(api: GatewayApiServer) -> list[str]:
    """The keys of what holds GPUs in the namespace `red`."""
    return [key for key, job in api.objects["gpujobs"].items() if "reservation" in job["spec"]]


@pytest.fixture
async def scheduling(api: GatewayApiServer) -> AsyncIterator[None]:
    """Do what the operator does: each reservation gets two devices."""

    async def run() -> None:
        while True:
            for key in reservations(api):
                if not api.objects["gpujobs"][key].get("status"):
                    api.run(key, devices=DEVICES)
            await asyncio.sleep(0.005)

    task = asyncio.create_task(run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


SIDES = {"aio": (AsyncClient, AsyncTaskClient), "blocking": (Client, TaskClient)}


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, gateway: Face) -> Side:
    return Side(*SIDES[request.param], gateway.url)
