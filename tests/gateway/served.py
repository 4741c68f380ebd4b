"""A gateway over a real port, in front of the tests' API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import aiohttp

from dovetail.config.settings import Settings
from dovetail.process import connections
from dovetail_gateway.app import Gateway, Options, gateway
from dovetail_gateway.routing.server import HEADER_BYTES, refuse
from dovetail_gateway.samples.store import SampleStore
from dovetail_gateway.v2.templates import TemplateFile
from tests.gateway.api_server import GatewayApiServer

# What tasks run where a test does not say otherwise: what they do in a sandbox.
TASKS = TemplateFile(Path(str(resources.files("dovetail_sandbox"))) / "data" / "task_templates.yaml")
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Reply:
    """A status, headers, the body, and the body decoded."""

    status: int
    headers: Any
    text: str
    json: Any


@dataclass(frozen=True)
class Face:
    """The gateway as callers meet it."""

    made: Gateway
    session: aiohttp.ClientSession
    url: str

    async def ask(
        self, method: str, path: str, *, token: str = "", headers: dict[str, str] | None = None, **options: Any
    ) -> Reply:
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.request(
            method, self.url + path, headers={**sent, **(headers or {})}, allow_redirects=False, **options
        ) as response:
            text = await response.text()
            is_json = "json" in response.content_type and text
            return Reply(
                response.status, response.headers, text, await response.json(content_type=None) if is_json else None
            )

    async def get(self, path: str, *, token: str = "", **options: Any) -> Reply:
        return await self.ask("GET", path, token=token, **options)

    async def until_synced(self) -> None:
        async with asyncio.timeout(20):
            while self.made.cache.obstacle:  # noqa: ASYNC110 - the cache has no event
                await asyncio.sleep(0.005)

    async def until_like(self, api: GatewayApiServer) -> None:
        """Return once the gateway has seen every object as it is now."""
        stores = {reflector.resource.plural: reflector.store for reflector in self.made.cache._reflectors}
        async with asyncio.timeout(20):
            for kind in ("nodes", "gpunodes", "pods", "gpujobs", "gpuquotas"):
                while not _is_like(stores[kind], api.objects[kind]):  # noqa: ASYNC110 - the cache has no event
                    await asyncio.sleep(0.005)


def _is_like(store: Any, objects: dict[str, Any]) -> bool:
    """Whether the store has the newest version of each object; one that cannot be read has none."""
    wanted = {key: each["metadata"]["resourceVersion"] for key, each in objects.items()}
    found = {key: each.metadata.resource_version for key, each in store.items()}
    return found.items() <= wanted.items() and all("broken" in key for key in wanted.keys() - found.keys())


def busy(made: Gateway) -> dict[str, Any]:
    """What a gateway still does or holds for callers; empty once all of them have left."""
    answers, reviews = made.answers, made.reviews
    found = {
        "streams": int(made.metrics.streams._value.get()),
        "answers": (len(answers._queue), len(answers._pacing._running)),
        "reviews": (len(reviews._queue), len(reviews._calls)),
        "identities": (len(reviews.identities._queue), len(reviews.identities._calls)),
        "waiters": list(made.cache._waiting),
    }
    return {name: value for name, value in found.items() if value not in (0, (0, 0), [])}


async def until_idle(made: Gateway) -> None:
    """Return once nothing is held for a caller: a slot that is not given back makes others wait for ever."""
    for _ in range(4000):
        if not busy(made):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"left by callers who are gone: {busy(made)}")


@asynccontextmanager
async def serving(
    api: GatewayApiServer,
    *,
    options: Options | None = None,
    settings: Settings | None = None,
    synced: bool = True,
    wait_seconds: float = 5.0,
    store: SampleStore | None = None,
    now: Callable[[], datetime] = lambda: NOW,
) -> AsyncIterator[Face]:
    asked = options or Options(rates=None)
    templates = TASKS if asked.templates.path is None else asked.templates
    made = gateway(
        api.connection,
        settings=settings or Settings(),
        options=replace(asked, templates=templates, allocation_wait_seconds=wait_seconds),
        store=store,
        now=now,
    )
    async with made as running:
        following = asyncio.gather(running.cache.run(), running.feed.run())
        listening = connections.listening(
            running.application,
            host="127.0.0.1",
            port=0,
            tls=None,
            connections=running.connections,
            most_header_bytes=HEADER_BYTES,
            refuse=refuse,
        )
        async with listening as port, aiohttp.ClientSession() as session:
            face = Face(running, session, f"http://127.0.0.1:{port}")
            try:
                if synced:
                    await face.until_synced()
                yield face
                await session.close()
                await until_idle(running)
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
