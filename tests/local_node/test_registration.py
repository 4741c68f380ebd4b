"""The node of this machine at the API server, in virtual time: registered, kept alive, and made again."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.resources import NODES, Resource
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound, ServerFault, Status
from dovetail_local_node import node_object
from dovetail_local_node.machine import Machine
from dovetail_local_node.registration import Registration
from tests import virtual_time
from tests.virtual_time import clock

MACHINE = Machine(cpus=8, memory_mib=1024, boot_id="b", hostname="h", kernel="6", architecture="amd64")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Server:
    """Nodes and Leases, with the time and the kind of each write."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes: list[tuple[float, str]] = []
        self.refusals: list[KubeError] = []
        self.number = 0

    async def create(self, resource: Resource, *, body: Any, as_type: Any, namespace: str | None = None) -> Any:
        assert namespace == (None if resource == NODES else "kube-node-lease")
        name = body["metadata"]["name"]
        self._refuse()
        if (resource.plural, name) in self.objects:
            raise AlreadyExists(Status(code=409))
        self.number += 1
        metadata = {**body["metadata"], "uid": f"uid-{self.number}"}
        return self._write(f"create {resource.kind}", resource, {**body, "metadata": metadata}, as_type)

    async def patch(
        self,
        resource: Resource,
        *,
        name: str,
        patch: Any,
        as_type: Any,
        kind: str = "merge",
        namespace: str | None = None,
        subresource: str = "",
    ) -> Any:
        assert (kind, namespace, subresource) == (
            ("strategic", None, "status") if resource == NODES else ("merge", "kube-node-lease", "")
        )
        self._refuse()
        found = self._found(resource, name)
        return self._write(f"patch {resource.kind}", resource, {**found, **patch}, as_type)

    async def get(self, resource: Resource, *, name: str, as_type: Any) -> Any:
        self._refuse()
        return msgspec.convert(self._found(resource, name), as_type, strict=False)

    def _found(self, resource: Resource, name: str) -> dict[str, Any]:
        if (resource.plural, name) not in self.objects:
            raise NotFound(Status(code=404))
        return self.objects[resource.plural, name]

    def _refuse(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    def _write(self, what: str, resource: Resource, made: dict[str, Any], as_type: Any) -> Any:
        self.writes.append((clock() - 1000, what))
        self.objects[resource.plural, made["metadata"]["name"]] = made
        return msgspec.convert(made, as_type, strict=False)

    def kinds(self) -> list[str]:
        """The writes since the last call."""
        found = [what for _, what in self.writes]
        self.writes.clear()
        return found


def scenario(test: Callable[[Server, Registration], Awaitable[None]]) -> Callable[[], None]:
    """A test beside a registration that runs, in virtual time."""

    async def play() -> None:
        server: Any = Server()
        registration = Registration(
            client=server,
            name="local",
            machine=MACHINE,
            port=10250,
            now=lambda: NOON + timedelta(seconds=clock() - 1000),
            limits="No limits.",
        )
        task = asyncio.create_task(registration.run())
        await asyncio.sleep(0.5)
        try:
            await test(server, registration)
        finally:
            task.cancel()
            await asyncio.wait([task])

    return lambda: virtual_time.run(play())


@scenario
async def test_the_node_is_made_once_and_kept_alive_by_its_lease(server: Server, registration: Registration) -> None:
    assert server.kinds() == ["create Node", "patch Node", "create Lease"]
    assert registration.problem == ""
    node, lease = server.objects["nodes", "local"], server.objects["leases", "local"]
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert node["status"]["conditions"][0]["status"] == "True"
    await asyncio.sleep(289)
    assert server.kinds() == ["patch Lease"] * 28
    assert server.objects["leases", "local"]["spec"]["renewTime"] == "2026-01-31T12:04:40.000000Z"
    await asyncio.sleep(20)
    assert server.kinds() == ["patch Lease", "patch Node", "patch Lease"]


@scenario
async def test_a_node_that_somebody_deletes_comes_back_after_a_heartbeat(
    server: Server, registration: Registration
) -> None:
    del server.objects["nodes", "local"], server.objects["leases", "local"]
    server.kinds()
    await asyncio.sleep(9.6)
    assert "404" in registration.problem
    await asyncio.sleep(1.5)
    assert server.kinds() == ["create Node", "patch Node", "create Lease"]
    assert registration.problem == ""
    uid = server.objects["nodes", "local"]["metadata"]["uid"]
    assert server.objects["leases", "local"]["metadata"]["ownerReferences"][0]["uid"] == uid


@scenario
async def test_a_node_that_is_there_gets_the_status_of_now(server: Server, registration: Registration) -> None:
    server.objects["nodes", "local"]["status"] = {"conditions": []}
    registration.problem = "begun again"
    server.kinds()
    await asyncio.sleep(10)
    assert server.kinds() == ["patch Node", "patch Lease"]
    assert server.objects["nodes", "local"]["status"]["conditions"][0]["type"] == "Ready"


@scenario
async def test_a_heartbeat_that_fails_says_why_and_is_made_again_after_a_second(
    server: Server, registration: Registration
) -> None:
    server.kinds()
    server.refusals = [ServerFault(Status(code=500, message="etcd is away"))] * 3
    await asyncio.sleep(10)
    assert "etcd is away" in registration.problem
    assert server.kinds() == []
    await asyncio.sleep(3)
    assert registration.problem == ""
    assert server.kinds() == ["patch Node", "patch Lease"]


@pytest.mark.parametrize("cpus", [1, 64])
def test_the_number_of_pods_grows_with_the_machine(cpus: int) -> None:
    machine = Machine(cpus=cpus, memory_mib=1024, boot_id="b", hostname="h", kernel="6", architecture="amd64")
    status = node_object.status(machine=machine, port=1, limits="", now=NOON)
    assert (
        status["allocatable"]
        == status["capacity"]
        == {"cpu": str(cpus), "memory": "1024Mi", "pods": str(16 + 4 * cpus)}
    )
    assert status["nodeInfo"]["bootID"] == "b"
