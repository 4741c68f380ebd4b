"""The API server of one agent, in the memory of the test: lists, watches and the agent's writes, in virtual time.

It keeps what the real one keeps: a write through `status` changes the status alone, a write that changes nothing is no
new version, an object that is created again has another UID, and a patch of one that is gone is refused.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.api.gpunodetenants import GPUNodeTenants, GPUNodeTenantsSpec
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import GPUNODES, GPUNODETENANTS, NODES, Resource
from dovetail.config.settings import Settings
from dovetail.kube.errors import KubeError, NotFound, Status
from dovetail.kube.watch_stream import ListMeta, Page
from dovetail_agent.agent import FIELD_MANAGER, Agent
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.protocol import Feature
from dovetail_agent.main import rules_of
from tests.agent.builders import NOON, make_node
from tests.faults import Effects
from tests.virtual_time import clock

Object = dict[str, Any]
NODE = "v100-0"


class Cluster:
    """Nodes, GPUNodes and GPUNodeTenants. `writes` has each write's time and kind, `refusals` what fails next."""

    def __init__(self, effects: Effects | None = None) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[tuple[float, str]] = []
        self.refusals: list[KubeError] = []
        self.before_write: Callable[[str], None] = lambda _kind: None
        self._effects = effects or Effects()
        self._events: list[tuple[int, str, Object]] = []
        self._news = asyncio.Event()
        self._version = 0

    # What people, kubelet and the operator do.

    def put(self, resource: Resource, name: str, **content: Any) -> None:
        """Create an object, or replace these fields of it."""
        found = self.objects.get((resource.plural, name))
        event = "ADDED" if found is None else "MODIFIED"
        uid = f"uid-{self._version}" if found is None else found["metadata"]["uid"]
        kept = found or {"metadata": {"name": name}}
        metadata = {**kept["metadata"], **content.pop("metadata", {}), "name": name, "uid": uid}
        self._keep(resource, {**kept, **content, "metadata": metadata}, event=event)

    def node(self, **changes: Any) -> None:
        """The node as kubelet has it, with these fields of `make_node`."""
        made = json.loads(msgspec.json.encode(make_node(**changes)))
        metadata = {key: made["metadata"].get(key, {}) for key in ("labels", "annotations")}
        self.put(NODES, NODE, metadata=metadata, status=made["status"])

    def tenants(self, *tenants: Any, answers: int = 0) -> None:
        """What the operator says of the node's pods."""
        spec = GPUNodeTenantsSpec(tenants=list(tenants), answers=answers)
        made = json.loads(msgspec.json.encode(GPUNodeTenants(metadata=ObjectMeta(name=NODE), spec=spec)))
        self.put(GPUNODETENANTS, NODE, spec=made["spec"])

    def delete(self, resource: Resource, name: str = NODE) -> None:
        found = self.objects.pop((resource.plural, name))
        self._tell("DELETED", resource, found)

    # What the agent sees.

    def of(self, resource: Resource, name: str = NODE) -> Object:
        return self.objects[resource.plural, name]

    async def pages(self, resource: Resource, *, as_type: Any, **selectors: Any) -> AsyncIterator[Page[Any]]:
        assert as_type is msgspec.Raw
        items = [each for (kind, _), each in self.objects.items() if kind == resource.plural]
        texts = [msgspec.Raw(json.dumps(each).encode()) for each in items if _selects(selectors, each)]
        yield Page(metadata=ListMeta(resource_version=str(self._version)), items=texts)

    @asynccontextmanager
    async def stream(self, resource: Resource, *, query: Any, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def lines() -> AsyncIterator[bytes]:
            at = int(query["resourceVersion"])
            selectors = {"field_selector": query.get("fieldSelector")}
            while True:
                for version, kind, event in self._events:
                    if version > at and kind == resource.plural and _selects(selectors, event["object"]):
                        yield json.dumps(event).encode() + b"\n"
                at = self._version
                self._news.clear()
                await self._news.wait()

        yield lines()

    async def apply(
        self, resource: Resource, *, name: str, body: Object, as_type: Any, field_manager: str, force: bool
    ) -> Any:
        assert (resource, field_manager, force) == (GPUNODES, FIELD_MANAGER, True)
        assert (body["metadata"]["name"], body.keys()) == (name, {"metadata"})

        def change() -> Any:
            metadata = {"ownerReferences": msgspec.to_builtins(body["metadata"]["ownerReferences"])}
            found = self.objects.get((resource.plural, name))
            if found is None or found["metadata"].get("ownerReferences") != metadata["ownerReferences"]:
                self.put(resource, name, metadata=metadata)
            return self._read(resource, name, as_type=as_type)

        return await self._write("GPUNode", change)

    async def patch(
        self,
        resource: Resource,
        *,
        name: str,
        patch: Any,
        as_type: Any,
        subresource: str,
        kind: str = "merge",
    ) -> Any:
        assert subresource == "status"

        def change() -> Any:
            found = self.objects.get((resource.plural, name))
            if found is None:
                raise NotFound(Status(code=404))
            made = _patched(found, msgspec.to_builtins(patch), kind=kind)
            allowed = {"status", "metadata"} if resource == NODES else {"status"}
            assert {key for key in made if made[key] != found.get(key)} <= allowed
            if made != found:
                self._keep(resource, made, event="MODIFIED")
            return self._read(resource, name, as_type=as_type)

        return await self._write(f"{resource.kind}.status", change)

    async def _write(self, kind: str, change: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        self.before_write(kind)
        if self.refusals:
            raise self.refusals.pop(0)
        self.writes.append((clock(), kind))
        return self._effects.around(kind, change)()

    def _read(self, resource: Resource, name: str, *, as_type: Any) -> Any:
        return msgspec.json.decode(json.dumps(self.objects[resource.plural, name]).encode(), type=as_type)

    def _keep(self, resource: Resource, made: Object, *, event: str) -> None:
        made = deepcopy(made)
        made["metadata"]["resourceVersion"] = str(self._version + 1)
        self.objects[resource.plural, made["metadata"]["name"]] = made
        self._tell(event, resource, made)

    def _tell(self, event: str, resource: Resource, made: Object) -> None:
        self._version += 1
        said = deepcopy(made)
        said["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, resource.plural, {"type": event, "object": said}))
        self._news.set()

    # The agent, and what a test asks.

    def agent(self, *features: Feature, provider: Any = None, node: str | None = NODE) -> Agent:
        client: Any = self
        started = clock()
        self._news = asyncio.Event()  # of the loop of this agent
        return Agent(
            client,
            provider=provider or SimulatedProvider(),
            rules=rules_of(Settings()),
            clock=lambda: NOON + timedelta(seconds=clock() - started),
            node=node,
            features=features,
        )

    @asynccontextmanager
    async def served(self, *features: Feature, **options: Any) -> AsyncIterator[Agent]:
        """An agent that runs while the context lasts."""
        agent = self.agent(*features, **options)
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            task.cancel()
            await asyncio.wait([task])

    def kinds(self) -> list[str]:
        """The kinds of what was written since the last call."""
        found = [kind for _, kind in self.writes]
        self.writes.clear()
        return found


def _selects(selectors: Any, found: Object) -> bool:
    selector = selectors.get("field_selector")
    return selector is None or selector == f"metadata.name={found['metadata']['name']}"


def _patched(found: Object, patch: Any, *, kind: str) -> Object:
    if kind == "merge":
        return _merged(deepcopy(found), patch)
    ((operation, path, value),) = [(each["op"], each["path"], each["value"]) for each in patch]
    assert (kind, operation, path) == ("json", "add", "/status")
    return {**deepcopy(found), "status": value}


def _merged(found: Object, patch: Object) -> Object:
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found
