"""What the operator tells each node's programs of its pods: what, of which nodes, how often, and never more."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import GPUNodeTenants, NodeTenant
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import PODS
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.errors import Conflict, NotFound, Status
from dovetail_operator.watchers.node_tenants import NodeTenants, Pace
from tests.containers import items_by_attribute
from tests.operator_.builders import make_pod

SECRET = "s3cr3t"
PACE = Pace(collect_seconds=0.01, between_seconds=0.05, departed_seconds=0.5)


class Server:
    """The API server as far as it is asked: objects with versions, their watches, and the pods of a node."""

    def __init__(self) -> None:
        self.objects: dict[str, GPUNodeTenants] = {}
        self.pods: dict[str, Pod] = {}
        self.writes: list[tuple[float, str]] = []
        self.deleted: list[str] = []
        self.watches: list[Callable[[EventType, GPUNodeTenants], None]] = []
        self.lists = 0
        self.version = 0

    async def create(self, _resource: Any, body: GPUNodeTenants, **_: Any) -> GPUNodeTenants:
        assert body.metadata.name not in self.objects
        return self._put(body)

    async def update(self, _resource: Any, name: str, body: GPUNodeTenants, **_: Any) -> GPUNodeTenants:
        if name not in self.objects:
            raise NotFound(Status(code=404, reason="NotFound"))
        if body.metadata.resource_version != self.objects[name].metadata.resource_version:
            raise Conflict(Status(code=409, reason="Conflict"))
        return self._put(body)

    async def delete(self, _resource: Any, name: str, *, uid: str) -> None:
        if name not in self.objects:
            raise NotFound(Status(code=404, reason="NotFound"))
        if uid != self.objects[name].metadata.uid:
            raise Conflict(Status(code=409, reason="Conflict"))
        self._tell("DELETED", self.objects.pop(name))
        self.deleted.append(name)

    async def list(self, resource: Any, *, field_selector: str, **_: Any) -> Any:
        assert resource == PODS
        self.lists += 1
        node = field_selector.removeprefix("spec.nodeName=")
        return type("Listing", (), {"items": [pod for pod in self.pods.values() if pod.spec.node_name == node]})

    def _put(self, body: GPUNodeTenants) -> GPUNodeTenants:
        self.writes.append((asyncio.get_running_loop().time(), body.metadata.name))
        self._store(body)
        return self.objects[body.metadata.name]

    def _store(self, body: GPUNodeTenants) -> None:
        self.version += 1
        meta = msgspec.structs.replace(
            body.metadata, resource_version=str(self.version), uid=body.metadata.uid or f"uid-{self.version}"
        )
        self.objects[body.metadata.name] = stored = msgspec.structs.replace(body, metadata=meta)
        self._tell("MODIFIED", stored)

    def _tell(self, event: EventType, stored: GPUNodeTenants) -> None:
        for watch in self.watches:
            watch(event, stored)


class EditedServer(Server):
    """Another writer empties each object right after its first write, and the watch is faster than the answer."""

    async def create(self, resource: Any, body: GPUNodeTenants, **options: Any) -> GPUNodeTenants:
        ours = await super().create(resource, body, **options)
        self._store(msgspec.structs.replace(ours, spec=msgspec.structs.replace(ours.spec, tenants=[])))
        return ours


class Scene:
    """The writer at work on that server, with the cluster's objects as the test says."""

    def __init__(self, server: Server, *, pace: Pace = PACE) -> None:
        self.server = server
        self.is_rush = False
        client: Any = server
        self.tenants = NodeTenants(
            client,
            pods=server.pods.values,
            vendors=DEFAULT_VENDORS,
            rng=random.Random(7),
            pace=pace,
            is_rush=lambda: self.is_rush,
        )
        server.watches.append(self.tenants.object_event)

    def node(self, name: str = "n1", *, uid: str = "uid-n1", event: Any = "ADDED", **labels: str) -> None:
        labels = labels or {names.LABEL_MANAGED: "true"}
        self.tenants.node_event(
            event, msgspec.convert({"metadata": {"name": name, "uid": uid, "labels": labels}}, Node)
        )

    def pod(self, worker: int = 0, *, event: Any = "ADDED", seen: bool = True, **about: Any) -> Pod:
        """A pod of the API server; unless it is `seen` the operator's watch has not told of it."""
        pod = make_pod(worker, devices=1, **about)
        if event == "DELETED":
            self.server.pods.pop(pod.metadata.uid)
        else:
            self.server.pods[pod.metadata.uid] = pod
        if seen:
            self.tenants.pod_event(event, pod)
        return pod

    def report(self, name: str = "n1", *, asked: int = 0, event: Any = "MODIFIED") -> None:
        status = GPUNodeStatus(tenants_asked=asked)
        self.tenants.gpunode_event(event, GPUNode(metadata=ObjectMeta(name=name), status=status))

    def of(self, name: str = "n1") -> list[NodeTenant]:
        found = self.server.objects.get(name)
        return found.spec.tenants if found else []

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - a task of its own writes
                await asyncio.sleep(0.005)

    async def quiet(self) -> None:
        await asyncio.sleep(4 * PACE.between_seconds)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene(Server())
    task = asyncio.create_task(scene.tenants.run())
    yield scene
    assert not task.done()
    task.cancel()


async def test_a_managed_node_has_its_pods_with_their_promises(scene: Scene) -> None:
    scene.node()
    pod = scene.pod()
    await scene.until(scene.of)
    (tenant,) = scene.of()
    assert (tenant.uid, tenant.namespace, tenant.running) == (pod.metadata.uid, "team", True)
    assert [device.uuid for device in tenant.devices] == ["GPU-n1-0"]
    (owner,) = scene.server.objects["n1"].metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", "n1", "uid-n1")


def test_nothing_of_a_pods_environment_is_told() -> None:
    container = {"name": "main", "image": SECRET, "env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET]}
    pod = msgspec.convert(
        {
            "metadata": {"name": "web", "namespace": "team", "uid": "u", "labels": {"l": SECRET},
                         "annotations": {"a": SECRET}},
            "spec": {"nodeName": "n1", "containers": [container], "serviceAccountName": SECRET},
        },
        Pod,
    )  # fmt: skip
    assert SECRET not in msgspec.json.encode(tenant_of_pod(pod)).decode()


@pytest.mark.parametrize("amount", ["2147483648", "1000000000000"])
def test_a_pod_beyond_the_schema_is_told_of_without_what_it_holds(amount: str) -> None:
    limits = {"nvidia.com/gpu": amount}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]}
    meta = {"name": "web", "namespace": "team", "uid": "u"}
    tenant = tenant_of_pod(msgspec.convert({"metadata": meta, "spec": spec}, Pod))
    assert tenant is not None
    assert (tenant.uid, tenant.namespace, tenant.name) == ("u", "team", "web")
    assert msgspec.json.decode(msgspec.json.encode(tenant), type=NodeTenant) == tenant


async def test_a_node_without_gpus_has_no_object(scene: Scene) -> None:
    scene.node("cpu", disk="ssd")
    scene.pod(node="cpu")
    await scene.quiet()
    assert scene.server.objects == {}


async def test_a_node_whose_agent_reports_has_one_with_the_pods_that_were_there_before(scene: Scene) -> None:
    scene.node("late", disk="ssd")
    pod = scene.pod(node="late")
    scene.report("late")
    await scene.until(lambda: [each.uid for each in scene.of("late")] == [pod.metadata.uid])


async def test_a_pod_that_ended_or_went_is_no_tenant(scene: Scene) -> None:
    scene.node()
    scene.pod(0)
    scene.pod(1)
    await scene.until(lambda: len(scene.of()) == 2)
    scene.pod(0, phase="Succeeded")
    scene.pod(1, event="DELETED")
    await scene.until(lambda: not scene.of())


@pytest.mark.parametrize(("is_rush", "writes"), [(True, 1), (False, 3)])
async def test_pods_that_leave_one_after_the_other_share_a_write_in_a_rush(
    scene: Scene, is_rush: bool, writes: int
) -> None:
    scene.node()
    scene.pod(0)
    scene.pod(1)
    await scene.until(lambda: len(scene.of()) == 2)
    await scene.quiet()
    scene.is_rush, before = is_rush, len(scene.server.writes)
    scene.pod(0, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    await asyncio.sleep(3 * PACE.between_seconds)
    scene.pod(0, event="DELETED")
    await asyncio.sleep(3 * PACE.between_seconds)
    scene.pod(1, event="DELETED")
    await scene.until(lambda: not scene.of())
    await scene.quiet()
    assert len(scene.server.writes) - before == writes


async def test_a_pod_that_comes_in_a_rush_is_told_of_with_those_that_left_before_it(scene: Scene) -> None:
    scene.node()
    scene.pod(0)
    await scene.until(scene.of)
    await scene.quiet()
    scene.is_rush, before = True, len(scene.server.writes)
    scene.pod(0, event="DELETED")
    pod = scene.pod(1)
    await scene.until(lambda: [each.uid for each in scene.of()] == [pod.metadata.uid])
    assert len(scene.server.writes) - before == 1


async def test_changes_within_a_second_are_one_write() -> None:
    scene = Scene(Server(), pace=Pace())
    scene.node()
    task = asyncio.create_task(scene.tenants.run())
    for worker in range(60):
        scene.pod(worker, phase="Pending")
        await asyncio.sleep(0.01)
        scene.pod(worker)
    await scene.until(lambda: len(scene.of()) == 60 and all(each.running for each in scene.of()))
    task.cancel()
    times = [at for at, _ in scene.server.writes]
    assert all(later - earlier >= 0.99 for earlier, later in pairwise(times))
    assert len(times) <= 3


async def test_a_new_operator_writes_nothing_that_is_there_already(scene: Scene) -> None:
    scene.node()
    scene.pod()
    await scene.until(scene.of)
    server, again = scene.server, Scene(scene.server)
    before = len(server.writes)
    again.tenants.object_event("ADDED", server.objects["n1"])
    again.node()
    for pod in server.pods.values():
        again.tenants.pod_event("ADDED", pod)
    task = asyncio.create_task(again.tenants.run())
    await again.quiet()
    assert len(server.writes) == before
    again.pod(1)
    await again.until(lambda: len(again.of()) == 2)
    task.cancel()


async def test_an_object_that_somebody_deletes_or_edits_is_written_again(scene: Scene) -> None:
    scene.node()
    scene.pod()
    await scene.until(scene.of)
    scene.tenants.object_event("DELETED", scene.server.objects.pop("n1"))
    await scene.until(scene.of)
    edited = msgspec.structs.replace(
        scene.server.objects["n1"], spec=msgspec.structs.replace(scene.server.objects["n1"].spec, tenants=[])
    )
    scene.server.objects["n1"] = edited
    scene.tenants.object_event("MODIFIED", edited)
    await scene.until(scene.of)


async def test_the_object_goes_with_its_node_and_comes_with_the_next_of_its_name(scene: Scene) -> None:
    scene.node()
    scene.pod()
    await scene.until(scene.of)
    scene.node(event="DELETED")
    await scene.until(lambda: scene.server.deleted == ["n1"])
    scene.node(uid="uid-of-the-next")
    await scene.until(scene.of)
    assert scene.server.objects["n1"].metadata.owner_references[0].uid == "uid-of-the-next"


async def test_a_node_made_again_under_its_name_becomes_the_owner_of_what_is_there(scene: Scene) -> None:
    """The watch may bring both in one event; the garbage collector deletes what the first one owns."""
    scene.node()
    scene.pod()
    await scene.until(scene.of)
    scene.node(uid="uid-of-the-next", event="MODIFIED")
    await scene.until(lambda: scene.server.objects["n1"].metadata.owner_references[0].uid == "uid-of-the-next")


async def test_a_node_that_is_no_longer_one_with_gpus_loses_its_object(scene: Scene) -> None:
    scene.node()
    await scene.until(lambda: "n1" in scene.server.objects)
    scene.node(event="MODIFIED", disk="ssd")
    await scene.until(lambda: scene.server.deleted == ["n1"])


async def test_a_question_is_answered_with_a_list_made_after_it(scene: Scene) -> None:
    scene.node()
    scene.pod()
    await scene.until(scene.of)
    assert scene.server.lists == 0
    scene.report(asked=1)
    await scene.until(lambda: scene.server.objects["n1"].spec.answers == 1)
    assert scene.server.lists == 1
    scene.report(asked=1)
    await scene.quiet()
    assert scene.server.lists == 1


async def test_no_question_is_answered_while_a_pod_of_the_node_was_not_seen(scene: Scene) -> None:
    """The watch of pods is behind: the process that the agent asks about may be of the pod that is missing."""
    scene.node()
    await scene.until(lambda: "n1" in scene.server.objects)
    unseen = scene.pod(seen=False)
    scene.report(asked=1)
    await scene.until(lambda: scene.server.lists >= 3)
    assert scene.server.objects["n1"].spec.answers == 0
    scene.tenants.pod_event("ADDED", unseen)
    await scene.until(lambda: scene.server.objects["n1"].spec.answers == 1)
    assert [each.uid for each in scene.of()] == [unseen.metadata.uid]


async def test_as_many_pods_are_not_the_same_pods(scene: Scene) -> None:
    """A pod that has gone and one that has come, neither of which the watch has told of."""
    scene.node()
    gone = scene.pod(0)
    await scene.until(scene.of)
    scene.server.pods.pop(gone.metadata.uid)
    unseen = scene.pod(1, seen=False)
    scene.report(asked=1)
    await scene.until(lambda: scene.server.lists >= 2)
    assert scene.server.objects["n1"].spec.answers == 0
    scene.tenants.pod_event("ADDED", unseen)
    await scene.until(lambda: scene.server.objects["n1"].spec.answers == 1)


async def test_each_question_is_answered_and_an_agent_that_begins_again_asks_none(scene: Scene) -> None:
    scene.node()
    scene.pod(0)
    queue = scene.tenants._queue
    for asked in (1, 2):
        # Nothing else makes it look at the node.
        await scene.until(lambda: scene.of() and not queue.load and not queue._timers)
        scene.report(asked=asked)
        await scene.until(lambda asked=asked: scene.of() and scene.server.objects["n1"].spec.answers == asked)
    lists = scene.server.lists
    scene.report(asked=0)
    scene.pod(1)
    await scene.until(lambda: len(scene.of()) == 2)
    assert (scene.server.lists, scene.server.objects["n1"].spec.answers) == (lists, 2)


async def test_a_node_that_is_one_with_gpus_for_a_moment_costs_no_other_its_list(scene: Scene) -> None:
    for event, labels in (("ADDED", {names.LABEL_MANAGED: "true"}), ("MODIFIED", {"disk": "ssd"})):
        scene.node("brief", uid="uid-brief", event=event, **labels)
    scene.pod(1, node="brief", seen=False)
    scene.pod(0, seen=False)
    scene.node()
    await scene.until(scene.of)
    assert list(scene.server.objects) == ["n1"]


async def test_of_a_node_that_went_nothing_is_kept(scene: Scene) -> None:
    scene.server.watches.clear()
    scene.node()
    scene.pod()
    await scene.until(lambda: "n1" in scene.server.objects)
    assert scene.tenants._pending._deadlines
    scene.report(asked=1)
    scene.node(event="DELETED")
    scene.report(event="DELETED")
    scene.tenants.object_event("DELETED", scene.server.objects.pop("n1"))
    await scene.until(lambda: +items_by_attribute(scene.tenants) == +items_by_attribute(Scene(Server()).tenants))


async def test_a_write_that_lost_a_race_is_made_again(scene: Scene) -> None:
    scene.node()
    scene.pod()
    await scene.until(scene.of)
    stale, newer = scene.server.objects["n1"], msgspec.structs.replace(
        scene.server.objects["n1"], metadata=msgspec.structs.replace(
            scene.server.objects["n1"].metadata, resource_version="900"
        ),
    )  # fmt: skip
    scene.server.objects["n1"] = newer
    scene.pod(1)
    await scene.quiet()
    assert len(scene.of()) == 1
    assert stale.spec == newer.spec
    scene.tenants.object_event("MODIFIED", newer)
    await scene.until(lambda: len(scene.of()) == 2)


async def test_an_edit_that_is_seen_before_the_answer_to_our_write_is_corrected() -> None:
    scene = Scene(EditedServer())
    scene.node()
    pod = scene.pod()
    task = asyncio.create_task(scene.tenants.run())
    await scene.until(lambda: len(scene.server.writes) == 2)
    task.cancel()
    assert [each.uid for each in scene.of()] == [pod.metadata.uid]


async def test_after_a_write_the_next_one_waits_for_the_watch(scene: Scene) -> None:
    scene.server.watches.clear()
    scene.node()
    await scene.until(lambda: "n1" in scene.server.objects)
    scene.pod()
    await scene.quiet()
    assert len(scene.server.writes) == 1
    scene.tenants.object_event("ADDED", scene.server.objects["n1"])
    await scene.until(scene.of)
    assert len(scene.server.writes) == 2
