"""A real extender over a real client, asked over HTTP as kube-scheduler does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from dovetail import names
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, Times
from dovetail.kube.retry import Backoff
from dovetail_extender.server import MAX_BODY_BYTES
from dovetail_extender.service import Extender, Options
from tests.background import eventually
from tests.clock import Clock
from tests.extender.api_server import ApiServer
from tests.extender.builders import asking, binding


class Face:
    """What kube-scheduler sees of one extender, and what a test sees behind it."""

    def __init__(self, extender: Extender, http: TestClient[Any, Any], *, clock: Clock) -> None:
        self.extender = extender
        self.ledger = extender.ledger
        self.http = http
        self.clock = clock

    async def ready(self) -> None:
        await eventually(lambda: not self.extender.obstacle())

    async def ask(self, verb: str, body: Any) -> tuple[int, Any]:
        """The status and the answer, decoded if it is JSON."""
        typed = {"Content-Type": "application/json"}
        data = {"data": body, "headers": typed} if isinstance(body, bytes | str) else {"json": body}
        async with self.http.post(f"/{verb}", **data) as response:
            text = await response.text()
            return response.status, await response.json() if response.content_type == "application/json" else text

    async def filter(self, pod: dict[str, Any], *nodes: str) -> dict[str, Any]:
        status, answer = await self.ask("filter", asking(pod, *nodes))
        assert status == 200, answer
        return dict(answer)

    async def prioritize(self, pod: dict[str, Any], *nodes: str) -> dict[str, int]:
        status, answer = await self.ask("prioritize", asking(pod, *nodes))
        assert status == 200, answer
        return {entry["Host"]: entry["Score"] for entry in answer}

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        """The error of the answer; empty when the pod is bound."""
        status, answer = await self.ask("bind", binding(pod, node))
        assert status == 200, answer
        return str(answer["Error"])

    async def chores(self) -> None:
        """What the extender does every second."""
        self.extender.background.let_time_pass()
        await self.extender.background.settle()

    async def sees(self, key: str) -> None:
        """Wait until the cache has the pod."""
        namespace, name = key.split("/")
        await eventually(lambda: self.extender.watching.cached(namespace=namespace, name=name) is not None)


@asynccontextmanager
async def watching(
    api: ApiServer, *, options: Options | None = None, identity: str = "one", times: Times | None = None
) -> AsyncIterator[Face]:
    """An extender on that API server; its caches may not be synced yet. It takes its leave as a process does."""
    clock = Clock()
    backoff = Backoff(first_seconds=0.01, longest_seconds=0.01)
    async with Client(api.connection, deadline_seconds=5.0, backoff=backoff) as client:
        leadership = Leadership(
            client, namespace="dovetail-system", name=names.EXTENDER_LEASE, identity=identity, times=times or Times()
        )
        extender = Extender(client, options=options or Options(), leadership=leadership, clock=clock)
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        extender.verbs.add_to(app)
        running = asyncio.create_task(extender.run())
        try:
            async with TestClient(TestServer(app, host="127.0.0.1")) as http:
                yield Face(extender, http, clock=clock)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await extender.resign()
