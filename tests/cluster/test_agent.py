"""The agent of the sandbox, which serves every node with declared devices, seen through the API server alone."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import find_condition
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.formats.quantities import whole
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_agent.devices.simulated.provider import device_uuid

pytestmark = pytest.mark.cluster

T = TypeVar("T")
DEVICES = json.dumps({"model": "V100", "count": 2, "memoryMiB": 32768})
HOST = {"cpu": "8", "memory": "64Gi", "pods": "10"}
# What the agent needs for a look, with room for a busy machine.
PATIENCE_SECONDS = 60


class Scene:
    """One node of the sandbox with its GPUNode."""

    def __init__(self, client: Client, *, name: str) -> None:
        self.client = client
        self.name = name

    async def create(self, *, devices: str = DEVICES) -> Node:
        """The node, as kubelet would register it; KWOK plays kubelet."""
        annotations = {names.SIMULATED_DEVICES: devices, "kwok.x-k8s.io/node": "fake"}
        # Tainted, so that nothing of other tests comes here.
        body = {
            "metadata": {"name": self.name, "labels": {names.LABEL_MANAGED: "true"}, "annotations": annotations},
            "spec": {"taints": [{"key": "test", "effect": "NoSchedule"}]},
            "status": {"capacity": HOST, "allocatable": HOST},
        }
        return await self.client.create(NODES, body=body, as_type=Node)

    async def annotate(self, **annotations: str | None) -> None:
        """Set annotations of `dovetail.dev/`, or take them away."""
        changes = {f"{names.GROUP}/{name.replace('_', '-')}": text for name, text in annotations.items()}
        await self.client.patch(NODES, name=self.name, patch={"metadata": {"annotations": changes}}, as_type=Node)

    async def node(self, holds: Callable[[Node | None], bool]) -> Node | None:
        """The Node once it is as it should be."""
        return await until(lambda: self.client.get(NODES, name=self.name, as_type=Node), holds)

    async def gpunode(self, holds: Callable[[GPUNode | None], bool]) -> GPUNode | None:
        """The GPUNode once it is as it should be; None where it should be gone."""
        return await until(lambda: self.client.get(GPUNODES, name=self.name, as_type=GPUNode), holds)

    async def remove(self) -> None:
        """Delete the node, if it is there."""
        try:
            await self.client.delete(NODES, name=self.name)
        except NotFound:
            return

    async def gone(self) -> None:
        """Delete the node and wait for its GPUNode's end: the next test may count the devices of the cluster."""
        await self.remove()
        await self.gpunode(lambda gpunode: gpunode is None)


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T | None], bool]) -> T | None:
    """What is read once it is as it should be; None where it should be gone."""
    found: T | None = None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    found = await read()
                except NotFound:
                    found = None
                if holds(found):
                    return found
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"still {found}") from None


def reported(gpunode: GPUNode | None) -> bool:
    return gpunode is not None and len(gpunode.status.devices) == 2


def ready(status: str) -> Callable[[GPUNode | None], bool]:
    def holds(gpunode: GPUNode | None) -> bool:
        told = find_condition(gpunode.status.conditions, type="Ready") if gpunode else None
        return told is not None and told.status == status

    return holds


def advertising(milli: int) -> Callable[[Node | None], bool]:
    def holds(node: Node | None) -> bool:
        amounts = [] if node is None else [node.status.capacity, node.status.allocatable]
        return bool(amounts) and all(whole(each.get(names.GPU_MILLI, "0")) == milli for each in amounts)

    return holds


@pytest.fixture
async def scene(client: Client) -> AsyncIterator[Scene]:
    scene = Scene(client, name=f"agent-{uuid.uuid4().hex[:8]}")
    await scene.create()
    yield scene
    await scene.gone()


async def test_declared_devices_are_published_and_advertised(scene: Scene) -> None:
    gpunode = await scene.gpunode(reported)
    node = await scene.node(advertising(2000))
    assert gpunode is not None
    assert node is not None
    assert [device.uuid for device in gpunode.status.devices] == [
        device_uuid(scene.name, index=0), device_uuid(scene.name, index=1),
    ]  # fmt: skip
    assert gpunode.metadata.owner_references[0].uid == node.metadata.uid
    assert whole(node.status.capacity[names.GPU_MEMORY_MIB]) == 2 * 32768
    assert whole(node.status.capacity[names.GPU_TURN]) == 8


async def test_a_bad_declaration_is_told_in_the_status_and_takes_the_capacity_away(scene: Scene) -> None:
    await scene.node(advertising(2000))
    await scene.annotate(simulated_devices="{")
    broken = await scene.gpunode(ready("False"))
    await scene.node(advertising(0))
    assert broken is not None
    assert broken.status.conditions[0].message.startswith(
        f"node {scene.name}: annotation dovetail.dev/simulated-devices"
    )
    await scene.annotate(simulated_devices=DEVICES)
    await scene.gpunode(ready("True"))
    await scene.node(advertising(2000))


async def test_a_node_that_no_longer_declares_devices_advertises_none(scene: Scene) -> None:
    await scene.node(advertising(2000))
    await scene.annotate(simulated_devices=None)
    await scene.node(advertising(0))
    await scene.gpunode(ready("False"))


async def test_a_device_that_breaks_is_unhealthy_and_no_longer_counted(scene: Scene) -> None:
    await scene.node(advertising(2000))
    await scene.annotate(**{names.SIMULATED_FAULTS.split("/")[1]: json.dumps({"1": "XID79FellOffTheBus"})})
    await scene.node(advertising(1000))
    gpunode = await scene.gpunode(lambda each: "Unhealthy" in healths(each))
    assert gpunode is not None
    assert [(device.health, device.health_reason) for device in gpunode.status.devices] == [
        ("Healthy", ""), ("Unhealthy", "XID79FellOffTheBus"),
    ]  # fmt: skip


async def test_what_a_restarted_kubelet_sets_to_zero_is_advertised_again(scene: Scene) -> None:
    await scene.node(advertising(2000))
    zeroed = {"status": {"capacity": {names.GPU_MILLI: "0"}, "allocatable": {names.GPU_MILLI: "0"}}}
    await scene.client.patch(NODES, name=scene.name, patch=zeroed, as_type=Node, subresource="status")
    await scene.node(advertising(2000))


async def test_a_deleted_gpunode_comes_back(scene: Scene) -> None:
    before = await scene.gpunode(reported)
    assert before is not None
    await scene.client.delete(GPUNODES, name=scene.name)
    after = await scene.gpunode(
        lambda each: reported(each) and each is not None and each.metadata.uid != before.metadata.uid
    )
    assert after is not None
    assert after.status.devices == before.status.devices


async def test_a_gpunode_goes_with_its_node_and_comes_back_with_it(scene: Scene) -> None:
    await scene.gpunode(reported)
    await scene.remove()
    await scene.gpunode(lambda gpunode: gpunode is None)
    node = await scene.create()
    await scene.gpunode(
        lambda each: each is not None and reported(each) and each.metadata.owner_references[0].uid == node.metadata.uid
    )


async def test_a_device_s_load_follows_the_pod_that_was_promised_it(scene: Scene, namespace: str) -> None:
    await scene.gpunode(reported)
    await scene.client.create(PODS, body=_pod(scene.name), as_type=Pod, namespace=namespace)
    busy = await scene.gpunode(lambda each: each is not None and any(utilizations(each)))
    assert busy is not None
    idle, used = sorted(busy.status.devices, key=lambda device: device.utilization)
    assert (idle.utilization, idle.used_mib) == (0, 0)
    assert used.utilization > 0.2
    assert 0 < used.used_mib <= 16000
    assert used.foreign_mib == 0
    await scene.client.delete(PODS, name="tenant", namespace=namespace, grace_period_seconds=0)
    await scene.gpunode(lambda each: each is not None and not any(utilizations(each)))


def healths(gpunode: GPUNode | None) -> list[str]:
    return [] if gpunode is None else [device.health for device in gpunode.status.devices]


def utilizations(gpunode: GPUNode) -> list[float]:
    return [device.utilization for device in gpunode.status.devices]


def _pod(node: str) -> dict[str, Any]:
    there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [there]}}}
    return {
        "metadata": {"name": "tenant", "annotations": {names.REQUEST: "16000M,0.5"}},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "affinity": affinity,
            "tolerations": [{"operator": "Exists"}],
        },
    }
