"""A small API server on loopback: lists, watches, reads and bindings, with the rules that matter to the extender.

It binds a pod once, honours the UID precondition and merges the Binding's annotations as the real one does. It can fall
silent, or answer a binding late or not at all although it happened.
"""

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.kube.auth.connection import Connection

LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "gpunodes": "/apis/dovetail.dev/v1beta1/gpunodes",
    "gpujobs": "/apis/dovetail.dev/v1beta1/gpujobs",
    "gpuquotas": "/apis/dovetail.dev/v1beta1/gpuquotas",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "resourceslices": "/apis/resource.k8s.io/v1/resourceslices",
}
WAKEUP = "/apis/storage.k8s.io/v1/namespaces/dovetail-system/csistoragecapacities/dovetail-wakeup"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/dovetail-system/leases"
_JOB = "/apis/dovetail.dev/v1beta1/namespaces/{namespace}/gpujobs/{name}"
_POD = "/api/v1/namespaces/{namespace}/pods/{name}"


class ApiServer:
    """`answering` cleared: nothing is answered. `telling` false: the watches are open but nothing comes through them.

    `binding_status`: bindings get that status and do not happen. `read_statuses` by kind: so do reads of one object,
    which `reads` counts. They wait while their kind's `read_gates` is cleared.
    """

    lists = LISTS

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in self.lists}
        self.bindings: list[dict[str, Any]] = []
        self.waiting_bindings = 0
        self.wakeups = 0
        self.wakeup_status: int | None = None
        self.answering = asyncio.Event()
        self.answering.set()
        self.telling = True
        self.listing = asyncio.Event()
        self.listing.set()
        self.answers_bindings = True
        self.binding_status: int | None = None
        self.reads: Counter[str] = Counter()
        self.read_statuses: dict[str, int] = {}
        self.read_gates: defaultdict[str, asyncio.Event] = defaultdict(_opened)
        self.leases: dict[str, dict[str, Any]] = {}
        self.lease_writes: list[dict[str, Any]] = []
        self.waiting_leases = 0
        self.answers_leases = True
        self._versions = itertools.count(1)
        self._watches: dict[str, dict[asyncio.Queue[dict[str, Any]], str]] = {kind: {} for kind in self.lists}
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        app = web.Application()
        self.add_to(app)
        server = TestServer(app, host="127.0.0.1")
        await server.start_server(shutdown_timeout=0.1)
        self.connection = Connection(server=str(server.make_url("")).rstrip("/"))
        try:
            yield self
        finally:
            self.answering.set()
            self._closing.set()
            await server.close()

    def add_to(self, app: web.Application) -> None:
        """Add every path that is served."""
        for kind, path in self.lists.items():
            app.router.add_get(path, self._list_or_watch(kind))
        app.router.add_get(_POD, self._read("pods"))
        app.router.add_get(_JOB, self._read("gpujobs"))
        app.router.add_post(f"{_POD}/binding", self._bind)
        app.router.add_get(f"{LEASES}/{{name}}", self._read_lease)
        app.router.add_post(LEASES, self._write_lease)
        app.router.add_put(f"{LEASES}/{{name}}", self._write_lease)
        app.router.add_patch(WAKEUP, self._wake)

    def put(self, kind: str, subject: dict[str, Any]) -> None:
        """Create or change an object."""
        key = _key(subject)
        event = "MODIFIED" if key in self.objects[kind] else "ADDED"
        subject["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[kind][key] = subject
        self._tell(kind, event, subject)

    def delete(self, kind: str, key: str) -> None:
        """Delete an object."""
        subject = self.objects[kind].pop(key)
        subject["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(kind, "DELETED", subject)

    def _tell(self, kind: str, event: str, subject: dict[str, Any]) -> None:
        for watch, selector in self._watches[kind].items() if self.telling else ():
            if _selects(selector, subject):
                watch.put_nowait({"type": event, "object": json.loads(json.dumps(subject))})

    def _list_or_watch(self, kind: str) -> Any:
        async def serve(request: web.Request) -> web.StreamResponse:
            await self.answering.wait()
            await self.listing.wait()
            if request.query.get("watch"):
                return await self._watch(request, kind)
            version, selector = str(next(self._versions)), request.query.get("fieldSelector", "")
            items = [subject for subject in self.objects[kind].values() if _selects(selector, subject)]
            return web.json_response(_page(items, version=version, query=request.query))

        return serve

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        since, selector = int(request.query["resourceVersion"]), request.query.get("fieldSelector", "")
        for subject in self.objects[kind].values():
            if self.telling and _selects(selector, subject) and int(subject["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "MODIFIED", "object": subject})
        self._watches[kind][queue] = selector
        response = web.StreamResponse()
        await response.prepare(request)
        closing, event = asyncio.create_task(self._closing.wait()), asyncio.create_task(queue.get())
        try:
            while not self._closing.is_set():
                await asyncio.wait({event, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    break
                await self.answering.wait()
                await response.write(json.dumps(event.result()).encode() + b"\n")
                event = asyncio.create_task(queue.get())
        finally:
            closing.cancel()
            event.cancel()
            self._watches[kind].pop(queue, None)
        return response

    def _read(self, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def serve(request: web.Request) -> web.Response:
            await self.answering.wait()
            self.reads[kind] += 1
            await self.read_gates[kind].wait()
            if status := self.read_statuses.get(kind):
                return _status(status, "Because", f"refused with {status}")
            found = self.objects[kind].get("{namespace}/{name}".format(**request.match_info))
            return _status(404, "NotFound", f"no such object of {kind}") if found is None else web.json_response(found)

        return serve

    async def _read_lease(self, request: web.Request) -> web.Response:
        await self.answering.wait()
        found = self.leases.get(request.match_info["name"])
        return _status(404, "NotFound", "no such lease") if found is None else web.json_response(found)

    async def _write_lease(self, request: web.Request) -> web.Response:
        self.waiting_leases += 1
        await self.answering.wait()
        self.waiting_leases -= 1
        lease = await request.json()
        name = lease["metadata"]["name"]
        found = self.leases.get(name)
        if found is None and request.method == "PUT":
            return _status(404, "NotFound", "no such lease")
        if found is not None and request.method == "POST":
            return _status(409, "AlreadyExists", "there is one")
        if found is not None and found["metadata"]["resourceVersion"] != lease["metadata"].get("resourceVersion"):
            return _status(409, "Conflict", "the object has been modified")
        lease["metadata"]["resourceVersion"] = str(next(self._versions))
        self.leases[name] = lease
        self.lease_writes.append(lease["spec"])
        if not self.answers_leases:
            await self._closing.wait()
        return web.json_response(lease)

    async def _wake(self, request: web.Request) -> web.Response:
        await self.answering.wait()
        self.wakeups += 1
        if self.wakeup_status is not None:
            return _status(self.wakeup_status, "Because", f"refused with {self.wakeup_status}")
        return web.json_response(await request.json())

    async def _bind(self, request: web.Request) -> web.Response:
        self.waiting_bindings += 1
        await self.answering.wait()
        self.waiting_bindings -= 1
        binding = await request.json()
        self.bindings.append(binding)
        if self.binding_status is not None:
            return _status(self.binding_status, "Because", f"refused with {self.binding_status}")
        answer = self._bound("{namespace}/{name}".format(**request.match_info), binding)
        if not self.answers_bindings:
            await self._closing.wait()
        return answer

    def _bound(self, key: str, binding: dict[str, Any]) -> web.Response:
        pod = self.objects["pods"].get(key)
        if pod is None:
            return _status(404, "NotFound", "no such pod")
        if pod["metadata"]["uid"] != binding["metadata"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        if pod["spec"].get("nodeName"):
            return _status(409, "Conflict", f"pod is already assigned to node {pod['spec']['nodeName']}")
        pod["spec"]["nodeName"] = binding["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(binding["metadata"].get("annotations", {}))
        self.put("pods", pod)
        return web.json_response({"kind": "Status", "status": "Success", "metadata": {}, "code": 201}, status=201)


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _page(items: list[dict[str, Any]], *, version: str, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of a list; `continue` has the version of the first page and the place of the next one."""
    version, _, start = query.get("continue", f"{version}/0").partition("/")
    after = int(start) + int(query.get("limit", len(items)))
    metadata = {"resourceVersion": version} | ({"continue": f"{version}/{after}"} if after < len(items) else {})
    return {"metadata": metadata, "items": items[int(start) : after]}


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}, status=code
    )


def _selects(selector: str, subject: dict[str, Any]) -> bool:
    """Whether a field selector of one equation, such as `spec.driver=x`, selects the object."""
    path, _, wanted = selector.partition("=")
    value: Any = subject
    for part in path.split(".") if path else ():
        value = value.get(part, {})
    return not path or value == wanted


def _key(subject: dict[str, Any]) -> str:
    meta = subject["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])
