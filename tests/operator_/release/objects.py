"""An API server on loopback with objects that can be read, listed, patched and deleted."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.api.resources import Resource
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff

_QUICK = Backoff(first_seconds=0.001, longest_seconds=0.002)
_NAMESPACE = re.compile(r"/namespaces/[^/]+(?=/)")
Object = dict[str, Any]


class Objects:
    """The objects by path. `refused` are paths whose requests are forbidden; a kind without a CRD is `unknown`."""

    def __init__(self) -> None:
        self.by_path: dict[str, Object] = {}
        self.patches: list[tuple[str, Object]] = []
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        # What admission and the operator add to a new object, by its kind's plural.
        self.created: dict[str, Object] = {}

    def add(self, resource: Resource, name: str, *, namespace: str | None = None, **fields: Any) -> Object:
        """Store an object; `labels` are those of its metadata."""
        labels = fields.pop("labels", {})
        metadata = {
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            **({"namespace": namespace} if namespace else {}),
        }
        made = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
        self.by_path[resource.path(namespace=namespace, name=name)] = made
        return made

    def names(self, resource: Resource) -> list[str]:
        """The names of all objects of a kind."""
        return sorted(each["metadata"]["name"] for each in self.by_path.values() if each["kind"] == resource.kind)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        server = TestServer(app)
        await server.start_server()
        try:
            url = str(server.make_url("")).rstrip("/")
            async with Client(Connection(server=url), backoff=_QUICK) as client:
                yield client
        finally:
            await server.close()

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        if path in self.refused:
            return _status(403, message=f"no right to {request.method} {path}")
        if request.method == "POST":
            return self._create(path, made=await request.json(), dry_run="dryRun" in request.query)
        if request.method == "PATCH":
            return self._patched(path.removesuffix("/status"), patch=await request.json())
        if request.method == "DELETE":
            return web.json_response(self.by_path.pop(path)) if path in self.by_path else _status(404)
        if path in self.by_path:
            return web.json_response(self.by_path[path])
        if path.rpartition("/")[2] in self.unknown or _is_object(path):
            return _status(404)
        found = [each for each in self._below(path) if _selected(each, selector=request.query.get("labelSelector", ""))]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": found})

    def _create(self, path: str, *, made: Object, dry_run: bool) -> web.Response:
        added = dict(self.created.get(path.rpartition("/")[2], {}))
        annotations = added.pop("annotations", {})
        name = made["metadata"]["name"]
        made = {
            **made,
            **added,
            "metadata": {**made["metadata"], "uid": f"uid-{name}", "labels": {}, "annotations": annotations},
        }
        if not dry_run:
            self.by_path[f"{path}/{name}"] = made
        return web.json_response(made, status=201)

    def _patched(self, path: str, *, patch: Object) -> web.Response:
        if path not in self.by_path:
            return _status(404)
        self.patches.append((path, patch))
        return web.json_response(self.by_path[path])

    def _below(self, path: str) -> list[Object]:
        return [
            each
            for key, each in self.by_path.items()
            if path in {key.rpartition("/")[0], _NAMESPACE.sub("", key).rpartition("/")[0]}
        ]


def _is_object(path: str) -> bool:
    """Whether the path names one object, by how many parts it has after its group's version."""
    parts = _NAMESPACE.sub("", path).strip("/").split("/")
    return len(parts) > (3 if parts[0] == "api" else 4)


def _selected(made: Object, *, selector: str) -> bool:
    """Whether an object's labels match `key=value`, `key` and `key notin (a,b)`, separated by commas."""
    labels = made["metadata"]["labels"]
    for key, rest in re.findall(r"([\w./-]+)( notin \([^)]*\)|=[^,]*|)(?:,|$)", selector):
        if rest.startswith("="):
            if labels.get(key) != rest[1:]:
                return False
        elif rest:
            if labels.get(key) in rest.partition("(")[2].rstrip(")").split(","):
                return False
        elif key not in labels:
            return False
    return True


def _status(code: int, *, message: str = "no") -> web.Response:
    reason = {403: "Forbidden", 404: "NotFound"}[code]
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code)
