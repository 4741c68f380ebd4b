"""A real HTTP server on loopback that plays an API server from a script: what to answer to which request, in order."""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. `released` holds it back until the test says so; `drop` closes the connection instead."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    released: asyncio.Event | None = None
    drop: bool = False


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The body of a watch: chunks as they go over the wire, and what comes after."""

    chunks: Sequence[bytes] = ()
    then: Literal["end", "silence", "drop"] = "silence"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


class Api:
    """Answers by script; a watch without a script stays silent, anything else without one is a test's mistake."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self._script: dict[str, deque[Answer | Stream]] = defaultdict(deque)
        self._closing = asyncio.Event()
        self._arrived = asyncio.Event()
        self._server: TestServer | None = None

    def answer(self, request: str, *answers: Answer | Stream) -> None:
        """Answer `GET /path` or `WATCH /path` with these, one after another."""
        self._script[request].extend(answers)

    def of(self, request: str) -> list[Seen]:
        """The requests of that kind so far."""
        return [seen for seen in self.seen if f"{_verb(seen.method, seen.query)} {seen.path}" == request]

    async def until(self, request: str, *, count: int) -> None:
        """Wait for that many requests of that kind."""
        async with asyncio.timeout(60):
            while len(self.of(request)) < count:
                self._arrived.clear()
                await self._arrived.wait()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._server = TestServer(app)
        await self._server.start_server()
        self.url = str(self._server.make_url("")).rstrip("/")

    async def stop(self) -> None:
        self._closing.set()
        assert self._server is not None
        await self._server.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.seen.append(
            Seen(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=dict(request.headers),
                body=json.loads(text) if text else None,
            )
        )
        self._arrived.set()
        verb = _verb(request.method, request.query)
        script = self._script[f"{verb} {request.path}"]
        if not script and verb == "WATCH":
            script.append(Stream())
        step = script.popleft() if script else Answer(status=599, body={"message": "the test has no answer for this"})
        if isinstance(step, Stream):
            return await self._stream(request, step)
        return await self._plain(request, step)

    async def _plain(self, request: web.Request, step: Answer) -> web.StreamResponse:
        if step.released is not None:
            await asyncio.wait(
                [asyncio.ensure_future(event.wait()) for event in (step.released, self._closing)],
                return_when=asyncio.FIRST_COMPLETED,
            )
        if step.drop:
            _drop(request)
        body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
        return web.Response(body=body, status=step.status, headers=step.headers)

    async def _stream(self, request: web.Request, step: Stream) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in step.chunks:
            await response.write(chunk)
        if step.then == "drop":
            _drop(request)
        if step.then == "silence":
            await self._closing.wait()
        return response


def _verb(method: str, query: Mapping[str, str]) -> str:
    return "WATCH" if query.get("watch") == "true" else method


def _drop(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def refusal(code: int, *, reason: str = "", message: str = "", headers: Mapping[str, str] | None = None) -> Answer:
    """A metav1.Status as an answer."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Answer(body=body, status=code, headers=headers or {})


def make_object(name: str, *, version: int, namespace: str = "ns", uid: str = "", **content: Any) -> dict[str, Any]:
    """An object as the API server has it."""
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(version),
        },
        **content,
    }  # fmt: skip


def listing(*objects: dict[str, Any], version: int, token: str = "") -> Answer:
    """A page of a list."""
    return Answer(body={"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(objects)})


def line(kind: str, content: dict[str, Any]) -> bytes:
    """A watch event as it goes over the wire."""
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    """A bookmark as real API servers send it for pods: with nulls where an object has lists."""
    content = {"kind": "Pod", "metadata": {"resourceVersion": str(version), "creationTimestamp": None}}
    return line("BOOKMARK", {**content, "spec": {"containers": None}, "status": {}})
