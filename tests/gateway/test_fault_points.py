"""Callers who hang up at each await of what changes something: asked again, the end is that of one who stayed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from dovetail.config.settings import Settings
from dovetail.decoding import decode
from dovetail.kube.errors import AlreadyExists, Invalid, KubeError, NotFound, ServerFault, Status, Unreachable
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.identities import NO_ONE
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.access.visibility import EVERYTHING
from dovetail_gateway.routing.table import Call, Nothing
from dovetail_gateway.v1.allocations import Allocations
from dovetail_gateway.v1.types import AllocationPath, Wanted
from dovetail_gateway.v2.resources import ResourceCalls
from dovetail_gateway.v2.tasks import Tasks
from dovetail_gateway.v2.types import NewLimits, TaskLimits, TaskPath
from dovetail_gateway.v3.jobs import Jobs
from dovetail_gateway.v3.types.jobs import Creation, JobPath, NewJob
from tests.extender.builders import make_gpunode, make_node
from tests.faults import at_each_await
from tests.gateway.builders import make_job
from tests.gateway.served import NOW
from tests.gateway.test_cluster_machine import make_cache, tell

NS: Final = "red"
CALLER: Final = caller_of(token_of("red-token"))
SPEC: Final = {"gpu": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}
HELD: Final = [{"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": 1000, "memoryMiB": 32768}]


class World:
    """A cluster whose API server goes on with a request after its caller has left, and a gateway's cache of it.

    `places` says whether the operator gives each reservation its devices at once. `fails` answers a write with this
    error, before or after it has happened.
    """

    def __init__(self, *, places: bool = True) -> None:
        self.places = places
        self.fails: KubeError | None = None
        self.happens = True
        self.cache = make_cache(Settings())
        self.serving = set[asyncio.Task[Any]]()
        self.jobs: dict[str, dict[str, Any]] = {}
        self.gpunodes = {name: make_gpunode(name) for name in ("a", "b")}
        self.writes: list[str] = []
        self._version = 0
        for name in ("a", "b"):
            tell(self.cache, "nodes", "ADDED", _versioned(make_node(name), self._next()))
            self._show("gpunodes", "ADDED", self.gpunodes[name])
        data = {"0": "a/cuda:0", "1": "b/cuda:0"}
        meta = {"name": "dovetail-device-indexes", "namespace": "dovetail-system", "uid": "i"}
        tell(self.cache, "configmaps", "ADDED", _versioned({"metadata": meta, "data": data}, self._next()))

    def add(self, name: str, **changes: Any) -> None:
        self.jobs[name] = make_job(name, namespace=NS) | changes
        self._show("gpujobs", "ADDED", self.jobs[name])

    @asynccontextmanager
    async def client_for(self, _caller: Caller) -> AsyncIterator["World"]:
        await asyncio.sleep(0)
        yield self

    async def may(self, _caller: Caller, **_: Any) -> bool:
        await asyncio.sleep(0)
        return True

    async def create(self, _resource: Any, *, body: Any, as_type: Any, **_: Any) -> Any:
        return await self._served(lambda: self._created(body), as_type=as_type)

    async def get(self, _resource: Any, *, name: str, as_type: Any, **_: Any) -> Any:
        return await self._served(lambda: self._found(name), as_type=as_type)

    async def delete(self, _resource: Any, *, name: str, uid: str = "", **_: Any) -> None:
        await self._served(lambda: self._deleted(name, uid=uid))

    async def patch(self, resource: Any, *, name: str, patch: Any, as_type: Any, **_: Any) -> Any:
        at = self.gpunodes if resource.plural == "gpunodes" else self.jobs
        return await self._served(lambda: self._patched(resource.plural, at, name, patch["spec"]), as_type=as_type)

    async def _served(self, effect: Callable[[], Any], *, as_type: Any = None) -> Any:
        """The answer of a request that goes on whoever waits for it."""

        async def serve() -> Any:
            await asyncio.sleep(0)
            if self.fails is not None and not self.happens:
                raise self.fails
            found = effect()
            await asyncio.sleep(0)
            if self.fails is not None:
                raise self.fails
            return found

        task = asyncio.ensure_future(serve())
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        found = await asyncio.shield(task)
        return None if as_type is None else decode(json.dumps(found), as_type=as_type)

    def _created(self, body: Any) -> Any:
        name = body["metadata"]["name"]
        if name in self.jobs:
            raise AlreadyExists(Status(code=409, reason="AlreadyExists"))
        job = make_job(name, namespace=NS, status={"phase": "Queued"}) | {"spec": body["spec"]}
        job["metadata"]["annotations"] |= body["metadata"].get("annotations", {})
        if self.places:
            job["status"] = {"phase": "Running", "devices": HELD, "nodes": ["a"]}
        self.jobs[name] = job
        self.writes.append("create")
        self._show("gpujobs", "ADDED", job)
        return job

    def _found(self, name: str) -> Any:
        if name not in self.jobs:
            raise NotFound(Status(code=404, reason="NotFound"))
        return self.jobs[name]

    def _deleted(self, name: str, *, uid: str) -> None:
        job = self._found(name)
        assert uid in ("", job["metadata"]["uid"])
        del self.jobs[name]
        self.writes.append("delete")
        self._show("gpujobs", "DELETED", job)

    def _patched(self, kind: str, at: dict[str, Any], name: str, spec: Any) -> Any:
        at[name] = {**at[name], "spec": at[name].get("spec", {}) | spec}
        self.writes.append("patch")
        self._show(kind, "MODIFIED", at[name])
        return at[name]

    def _show(self, kind: str, event: str, subject: dict[str, Any]) -> None:
        tell(self.cache, kind, event, _versioned(subject, self._next()))

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    async def settle(self) -> None:
        while self.serving:
            await asyncio.wait(self.serving)
        for _ in range(20):
            await asyncio.sleep(0)

    def waiters(self) -> int:
        return len(self.cache._waiting)


def _versioned(subject: dict[str, Any], version: str) -> dict[str, Any]:
    subject["metadata"]["resourceVersion"] = version
    return subject


def call(*, path: Any = None, body: Any = None, query: Any = None, **headers: str) -> Call[Any, Any, Any]:
    return Call(
        path=path, query=query or Nothing(), body=body, caller=CALLER, who=NO_ONE, sees=EVERYTHING, headers=headers
    )


class Gateway:
    """The handlers over one world."""

    def __init__(self, world: World, *, wait_seconds: float = 5.0) -> None:
        shared: dict[str, Any] = {"clients": world, "reviews": world}
        self.world = world
        self.allocations = Allocations(
            world.cache,
            **shared,
            answers=None,
            namespace=NS,
            wait_seconds=wait_seconds,  # type: ignore[arg-type]
        )
        self.tasks = Tasks(
            world.cache,
            **shared,
            answers=None,
            templates=None,
            namespace=NS,
            wait_seconds=0.01,  # type: ignore[arg-type]
        )
        self.resources = ResourceCalls(world.cache, **shared)
        self.jobs = Jobs(world.cache, clients=world, now=lambda: NOW)  # type: ignore[arg-type]

    async def end(self) -> Any:
        """What there is once nothing happens any more."""
        while self.allocations._withdrawing:
            await asyncio.wait(self.allocations._withdrawing)
        await self.world.settle()
        jobs = sorted(
            (name.partition("-")[0], job["spec"].get("cancel", False)) for name, job in self.world.jobs.items()
        )
        limits = {name: node.get("spec", {}) for name, node in self.world.gpunodes.items()}
        return jobs, limits, self.world.waiters()


def allocate(at: Gateway) -> Coroutine[Any, Any, Any]:
    return at.allocations.allocate(call(body=Wanted(gpu_count=1)))


def release(at: Gateway) -> Coroutine[Any, Any, Any]:
    return at.allocations.release(call(path=AllocationPath(id="alloc-1")))


def cancel_task(at: Gateway) -> Coroutine[Any, Any, Any]:
    return at.tasks.cancel_task(call(path=TaskPath(id="train-1")))


def cancel_job(at: Gateway) -> Coroutine[Any, Any, Any]:
    return at.jobs.cancel_job(call(path=JobPath(namespace=NS, name="train-1")))


def delete_job(at: Gateway) -> Coroutine[Any, Any, Any]:
    return at.jobs.delete_job(call(path=JobPath(namespace=NS, name="train-1")))


def limit_devices(at: Gateway) -> Coroutine[Any, Any, Any]:
    limits = {"cuda:0": TaskLimits(training=2), "cuda:1": TaskLimits(inference=5)}
    return at.resources.configure(call(body=NewLimits(max_concurrent=limits)))


def create_job(at: Gateway) -> Coroutine[Any, Any, Any]:
    new = NewJob(namespace=NS, spec=msgspec.Raw(json.dumps(SPEC).encode()))
    return at.jobs.create_job(call(body=new, query=Creation(), **{"Idempotency-Key": "k"}))


JOURNEYS: Final = [allocate, release, cancel_task, cancel_job, delete_job, limit_devices, create_job]


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.__name__)
@pytest.mark.parametrize("places", [True, False], ids=["placed", "waiting"])
async def test_who_hangs_up_at_any_await_and_asks_again_ends_where_one_who_stays_does(
    journey: Callable[[Gateway], Coroutine[Any, Any, Any]], places: bool
) -> None:
    async def make() -> Gateway:
        world = World(places=places)
        if journey is not allocate:
            labels = {"dovetail.dev/task-type": "training"}
            world.add("train-1")
            world.jobs["train-1"]["metadata"]["labels"] |= labels
            world.add("alloc-1", spec=SPEC | {"reservation": {"durationSeconds": 60}})
        return Gateway(world, wait_seconds=5.0 if places else 0.01)

    awaits = await at_each_await(make, journey=journey, end=Gateway.end)
    assert awaits >= 2


@pytest.mark.parametrize("happens", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize(
    "error",
    [Unreachable("s", problem="reset"), ServerFault(Status(code=504)), Invalid(Status(code=422))],
    ids=["no answer", "a proxy's answer", "refused"],
)
async def test_an_allocation_whose_answer_is_lost_holds_nothing(error: KubeError, happens: bool) -> None:
    at = Gateway(World())
    at.world.fails, at.world.happens = error, happens
    with pytest.raises(type(error)):
        await allocate(at)
    at.world.fails = None
    jobs, _, waiters = await at.end()
    if isinstance(error, Invalid):
        # What the API server refuses is not there, and nobody tries to delete it.
        assert "delete" not in at.world.writes
    else:
        assert (jobs, waiters) == ([], 0)
