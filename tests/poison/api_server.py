"""An API server on loopback for whole programs: any kind, lists, watches, and writes that are merged into objects.

It checks nothing, so that a test can store what a real one stores of old. `DEEP` anywhere in an object goes over the
wire nested `LEVELS` levels deep: json.dumps, which recurses, could not write that.
"""

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.core.hostile import nested

DEEP: Final = "<deep>"
# Deeper than any Python reads: 1,000 levels before 3.12, and 10,000 since.
LEVELS: Final = 9_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names; without `name` a kind."""

    plural: str
    namespace: str
    name: str
    subresource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """What a list or watch asks for: a label, `name` or `name=value`, and fields, `path=value` or `path!=value`."""

    label: str
    fields: str

    @classmethod
    def of(cls, request: web.Request) -> Self:
        """What a request asks for."""
        return cls(label=request.query.get("labelSelector", ""), fields=request.query.get("fieldSelector", ""))

    def matches(self, subject: dict[str, Any]) -> bool:
        """Whether an object is among those."""
        name, _, value = self.label.partition("=")
        labels = subject["metadata"].get("labels") or {}
        if name and not (name in labels and value in {"", labels[name]}):
            return False
        return all(self._has(subject, term=term) for term in filter(None, self.fields.split(",")))

    def _has(self, subject: dict[str, Any], *, term: str) -> bool:
        path, _, value = term.partition("=")
        found: Any = subject
        for key in path.removesuffix("!").split("."):
            found = (found or {}).get(key)
        return (str(found or "") == value) is not path.endswith("!")


class ApiServer:
    """`objects` by kind and `namespace/name`; `writes` are methods and targets in their order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.writes: list[tuple[str, Target]] = []
        self.url = ""
        self._versions = itertools.count(1)
        self._watches: dict[str, dict[asyncio.Queue[bytes], Selector]] = defaultdict(dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        server = TestServer(app, host="127.0.0.1")
        await server.start_server(shutdown_timeout=0.1)
        self.url = str(server.make_url("")).rstrip("/")
        try:
            yield self
        finally:
            await server.close()

    def put(self, plural: str, subject: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an object."""
        meta = subject["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
        event = "MODIFIED" if key in self.objects[plural] else "ADDED"
        meta.setdefault("uid", f"uid-{plural}-{meta['name']}")
        meta.setdefault("creationTimestamp", "2026-11-22T00:00:00Z")
        meta["resourceVersion"] = str(next(self._versions))
        self.objects[plural][key] = subject
        for watch, selector in self._watches[plural].items():
            if selector.matches(subject):
                watch.put_nowait(_text({"type": event, "object": subject}) + b"\n")
        return subject

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.count("/") < 3:
            # Discovery, which kopf asks for.
            return _answer({"versions": ["v1"], "groups": [], "resources": []})
        target = _target(request.path)
        if request.query.get("watch") == "true":
            return await self._watch(request, target)
        found = self.objects[target.plural].get("/".join(filter(None, (target.namespace, target.name))))
        if request.method == "GET":
            return self._list(request, target) if not target.name else _answer(found)
        self.writes.append((request.method, target))
        if request.method == "DELETE":
            return _answer({})
        body = await request.json()
        if target.name and found is None and "apply" not in request.content_type and not target.subresource:
            return _answer(None)
        if request.method == "PUT" and target.subresource == "status":
            # An update replaces the whole status, where a patch merges into it.
            body = self.put(target.plural, {**(found or {}), "status": body.get("status")})
        elif isinstance(body, list):
            # RFC 6902, of which our programs use this much: a whole field of the object.
            fields = {each["path"].removeprefix("/"): each["value"] for each in body if each["op"] == "add"}
            body = self.put(target.plural, {**(found or {}), **fields})
        elif target.subresource in {"", "status"}:
            body = self.put(target.plural, _merged(found or {}, body) if target.name else body)
        return _answer(body)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        selector, found = Selector.of(request), self.objects[target.plural].items()
        mine = [each for key, each in found if key.startswith(target.namespace) and selector.matches(each)]
        return _answer({"metadata": {"resourceVersion": str(next(self._versions))}, "items": mine})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        selector = Selector.of(request)
        for subject in self.objects[target.plural].values():
            newer = int(subject["metadata"]["resourceVersion"]) > int(request.query["resourceVersion"])
            if newer and selector.matches(subject):
                queue.put_nowait(_text({"type": "MODIFIED", "object": subject}) + b"\n")
        self._watches[target.plural][queue] = selector
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(await queue.get())
        finally:
            del self._watches[target.plural][queue]


def _target(path: str) -> Target:
    # /api/VERSION/… or /apis/GROUP/VERSION/…
    parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = [*parts, "", ""][:3]
    return Target(plural=plural, namespace=namespace, name=name, subresource=subresource)


def _merged(before: Any, change: Any) -> Any:
    """RFC 7386, which is close enough to a server-side apply for one writer."""
    if not isinstance(change, dict):
        return change
    base = before if isinstance(before, dict) else {}
    merged = {**base, **{key: _merged(base.get(key), value) for key, value in change.items()}}
    return {key: value for key, value in merged.items() if value is not None}


def _answer(found: dict[str, Any] | None) -> web.Response:
    if found is None:
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "there is none"}
        return web.json_response(status, status=404)
    return web.Response(body=_text(found), content_type="application/json")


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value).replace(f'"{DEEP}"', nested(LEVELS)).encode()
