"""An API server in memory: objects with versions, preconditions, and a watch of each kind that keeps their order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import msgspec

from dovetail.api.builtin import Job, Node, Pod
from dovetail.api.conversion import values_of
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail.api.resources import Resource
from dovetail.decoding import decode
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, Status

T = TypeVar("T")
Values = dict[str, Any]
Watch = Callable[[EventType, Any], None]

TYPES: dict[str, type] = {
    "gpujobs": GPUJob, "jobs": Job, "pods": Pod, "nodes": Node, "gpunodes": GPUNode, "gpuquotas": GPUQuota,
    "poddisruptionbudgets": PodDisruptionBudget,
}  # fmt: skip


class ApiServer:
    """Objects by kind and `namespace/name`, as JSON values. `now` writes the times of new objects."""

    def __init__(self, now: Callable[[], str]) -> None:
        self.objects: dict[str, dict[str, Values]] = {}
        self.watches: list[Callable[[str, EventType, Values], None]] = []
        self._now = now
        self._version = 100

    # --- what everybody may do ---------------------------------------------------------------------------------

    def all(self, plural: str) -> list[Values]:
        return list(self.objects.get(plural, {}).values())

    def typed(self, plural: str) -> Iterator[Any]:
        """The objects of a kind, decoded."""
        return (as_typed(plural, each) for each in self.all(plural))

    def find(self, plural: str, key: str) -> Values | None:
        return self.objects.get(plural, {}).get(key)

    def create(self, plural: str, values: Values) -> Values:
        made = _copied(values)
        meta = made["metadata"]
        key = _key(meta)
        if self.find(plural, key) is not None:
            raise AlreadyExists(Status(code=409, message=f"{plural} {key} exists"))
        self._version += 1
        # A UID has no slash: a seat and a hold name a worker as UID/INDEX.
        meta.update(uid=f"{key.replace('/', '.')}#{self._version}", resourceVersion=str(self._version), generation=1)
        meta.setdefault("creationTimestamp", self._now())
        self.objects.setdefault(plural, {})[key] = made
        self._tell(plural, "ADDED", made)
        return made

    def change(self, plural: str, key: str, change: Callable[[Values], None]) -> Values:
        """Change an object in place of its version; nothing happens if nothing differs."""
        known = self.objects.get(plural, {}).get(key)
        if known is None:
            raise NotFound(Status(code=404))
        made = _copied(known)
        change(made)
        if made == known:
            return known
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        if made.get("spec") != known.get("spec"):
            made["metadata"]["generation"] += 1
        self.objects[plural][key] = made
        self._tell(plural, "MODIFIED", made)
        return made

    def merge(self, plural: str, key: str, patch: Values) -> Values:
        """Apply a merge patch, with the preconditions in its metadata."""
        self._check(plural, key, patch.get("metadata", {}))
        return self.change(plural, key, lambda values: _merge(values, patch))

    def delete(self, plural: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._check(plural, key, {"uid": uid, "resourceVersion": version})
        gone = self.objects[plural].pop(key)
        self._version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._tell(plural, "DELETED", gone)

    def _check(self, plural: str, key: str, wanted: Values) -> None:
        known = self.find(plural, key)
        if known is None:
            raise NotFound(Status(code=404))
        for field in ("uid", "resourceVersion"):
            if wanted.get(field) not in (None, known["metadata"][field]):
                raise Conflict(Status(code=409))

    def _tell(self, plural: str, type_: EventType, values: Values) -> None:
        for watch in list(self.watches):
            watch(plural, type_, values)


class ApiClient:
    """The operator's client. `answer` is awaited around each effect: it delays, and never returns to a dead operator.

    `effects` are the operator's writes, in order.
    """

    def __init__(self, server: ApiServer, *, before: Callable[[], Any], after: Callable[[str], Any]) -> None:
        self._server = server
        self._before = before
        self._after = after

    async def get(self, resource: Resource, *, name: str, as_type: type[T], namespace: str = "", **_: Any) -> T:
        await self._before()
        found = self._server.find(resource.plural, _name(namespace, name))
        if found is None:
            raise NotFound(Status(code=404))
        return _decoded(found, as_type)

    async def list(
        self, resource: Resource, *, as_type: type[T], namespace: str = "", field_selector: str = "", **_: Any
    ) -> tuple[list[T], str]:
        """The object of a kind with the name that the selector says."""
        await self._before()
        found = self._server.find(resource.plural, _name(namespace, field_selector.removeprefix("metadata.name=")))
        return ([] if found is None else [_decoded(found, as_type)]), ""

    async def create(self, resource: Resource, *, body: Any, as_type: type[T], namespace: str = "", **_: Any) -> T:
        values = values_of(body)
        values["metadata"].setdefault("namespace", namespace)
        return await self._write(
            lambda: self._server.create(resource.plural, values), f"POST {resource.plural}", as_type
        )

    async def update(
        self, resource: Resource, *, name: str, body: Any, as_type: type[T], namespace: str = "", subresource: str = "",
        **_: Any,
    ) -> T:  # fmt: skip
        assert subresource == "status", "the operator replaces nothing else"
        values, key = values_of(body), _name(namespace, name)

        def write() -> Values:
            self._server._check(resource.plural, key, values["metadata"])
            return self._server.change(resource.plural, key, lambda known: known.update(status=values["status"]))

        return await self._write(write, f"PUT {resource.plural}", as_type)

    async def patch(
        self, resource: Resource, *, name: str, patch: Any, as_type: type[T], namespace: str = "", **_: Any
    ) -> T:
        values, key = values_of(patch), _name(namespace, name)
        return await self._write(
            lambda: self._server.merge(resource.plural, key, values), f"PATCH {resource.plural}", as_type
        )

    async def delete(
        self, resource: Resource, *, name: str, namespace: str = "", uid: str | None = None,
        resource_version: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        key = _name(namespace, name)

        def write() -> Values:
            self._server.delete(resource.plural, key, uid=uid, version=resource_version)
            return {}

        await self._write(write, f"DELETE {resource.plural}", dict)

    async def pages(self, _resource: Resource, **_: Any) -> AsyncIterator[Any]:
        """Nothing: the informers that list are those of events that pods cannot be created."""
        await never()
        yield

    async def _write(self, effect: Callable[[], Values], what: str, as_type: type[T]) -> T:
        await self._before()
        written = effect()
        await self._after(what)
        return _decoded(written, as_type)


def as_typed(plural: str, values: Values) -> Any:
    """The object as the informers read it."""
    return _decoded(values, TYPES[plural])


def _decoded(values: Values, as_type: type[T]) -> T:
    return decode(msgspec.json.encode(values), as_type=as_type)


def _copied(values: Values) -> Values:
    copy: Values = msgspec.json.decode(msgspec.json.encode(values))
    return copy


def _key(meta: Values) -> str:
    return _name(meta.get("namespace", ""), meta["name"])


def _name(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _merge(values: Values, patch: Values) -> None:
    for name, value in patch.items():
        if value is None:
            values.pop(name, None)
        elif isinstance(value, dict) and isinstance(values.get(name), dict):
            _merge(values[name], value)
        else:
            values[name] = value


async def never() -> None:
    """What a dead process gets for an answer."""
    await asyncio.Event().wait()
