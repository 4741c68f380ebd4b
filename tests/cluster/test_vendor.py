"""A mixed cluster: a node of a vendor's device plugin beside the managed ones. Here the agent plays its kubelet."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import Assignment, GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden
from dovetail.pods.allocation import allocation_in
from dovetail_agent.devices.simulated.provider import device_uuid
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from tests.cluster.jobs import Jobs
from tests.cluster.killing import kill, running
from tests.cluster.test_extender import PATIENCE_SECONDS, Scene, until
from tests.cluster.test_extender_office import kubeconfig, lease

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"
COUNT = 4
# Nothing of other tests comes to the node, and what is meant for it goes nowhere else.
TAINT = {"key": "test-vendor", "effect": "NoSchedule"}
TOLERATIONS = [{"key": "test-vendor", "operator": "Exists"}]


class VendorNode:
    """A node of V100s that NVIDIA's plugin serves."""

    def __init__(self, client: Client, *, name: str) -> None:
        self.client = client
        self.name = name
        self.uuids = {device_uuid(name, index=index) for index in range(COUNT)}
        self.place = {"nodeSelector": {"kubernetes.io/hostname": name}, "tolerations": TOLERATIONS}

    async def create(self) -> None:
        node = SimulatedNode(
            name=self.name, cpu_milli=64_000, memory_mib=262_144, model="V100", devices=COUNT,
            device_memory_mib=32_768, resource=GPU,
        )  # fmt: skip
        body = kwok.manifest(node) | {"spec": {"taints": [TAINT]}}
        await self.client.create(NODES, body=body, as_type=Node)
        await until(self._gpunodes, lambda found: any(len(each.status.devices) == COUNT for each in found))

    async def assigned(self, count: int) -> list[Assignment]:
        """What the node reports that kubelet gave, once it is that many."""
        found = await until(self._gpunodes, lambda found: any(len(each.status.assignments) == count for each in found))
        return found[0].status.assignments

    async def pod(self, name: str, gpus: int, *, namespace: str, request: str = "") -> Pod:
        body = {
            "metadata": {"name": name, "annotations": {names.REQUEST: request} if request else {}},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: gpus}}}],
                **self.place,
            },
        }
        return await self.client.create(PODS, body=body, as_type=Pod, namespace=namespace)

    async def _gpunodes(self) -> list[GPUNode]:
        listed, _ = await self.client.list(GPUNODES, as_type=GPUNode, field_selector=f"metadata.name={self.name}")
        return listed


@pytest.fixture
async def node(client: Client) -> AsyncIterator[VendorNode]:
    node = VendorNode(client, name=f"vendor-{uuid.uuid4().hex[:8]}")
    await node.create()
    yield node
    await client.delete(NODES, name=node.name)
    await until(node._gpunodes, lambda found: not found)


@pytest.fixture
async def scene(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Scene]:
    scene = Scene(client, namespace=namespace, sandbox=sandbox)
    yield scene
    await scene.clear()


def job_on(node: VendorNode) -> dict[str, Any]:
    annotations = {names.RUN_SECONDS: "100000"}
    spec = {"containers": [{"name": "main", "image": "busybox"}], **node.place}
    return {"metadata": {"annotations": annotations}, "spec": spec}


async def test_pods_of_both_kinds_find_their_nodes_and_kubelet_s_choice_is_reported(
    node: VendorNode, scene: Scene
) -> None:
    asked = await node.pod("by-vendor", 2, namespace=scene.namespace, request="2(V100)")
    await scene.create("managed", "1", milli=1000)
    by_vendor, managed = await scene.is_bound("by-vendor"), await scene.is_bound("managed")
    assert by_vendor.spec.node_name == node.name
    assert allocation_in(by_vendor.metadata.annotations) is None
    assert managed.spec.node_name != node.name
    assert allocation_in(managed.metadata.annotations) is not None
    (given,) = await node.assigned(1)
    assert (given.uid, given.name) == (asked.metadata.uid, "by-vendor")
    assert len(given.devices) == 2
    assert set(given.devices) <= node.uuids


async def test_a_gpujob_shows_the_devices_that_the_node_reports(node: VendorNode, jobs: Jobs) -> None:
    await jobs.submit(gpu="3(V100)", template=job_on(node))
    status = await jobs.until("x", lambda status: status.phase == "Running" and len(status.devices) == 3)
    (given,) = await node.assigned(1)
    assert {device.uuid for device in status.devices} == set(given.devices)
    assert all(device_uuid(node.name, index=device.index) == device.uuid for device in status.devices)
    assert status.nodes == [node.name]
    assert (await jobs.child()).metadata.annotations[names.GPU_RESOURCE] == GPU
    await jobs.submit("y", gpu=2, template=job_on(node))
    waiting = await jobs.phase("Queued", "y", reason="Resources")
    assert waiting.message.startswith("Need 2 GPUs, only 1 available")


async def test_another_model_and_a_share_are_refused_with_the_reason(
    node: VendorNode, scene: Scene, jobs: Jobs
) -> None:
    await node.pod("wrong", 1, namespace=scene.namespace, request="1(A100)")
    await scene.events("no GPU of model A100")
    await jobs.submit(gpu="1(A100)", template=job_on(node))
    wrong = await jobs.phase("Queued", reason="ExceedsCapacity")
    assert "no node has model A100, there is V100" in wrong.message
    await jobs.submit("share", gpu="0.5", template=job_on(node))
    share = await jobs.phase("Queued", "share", reason="ExceedsCapacity")
    assert "a vendor's plugin, which gives whole ones only" in share.message


async def test_what_a_deposed_extender_sent_late_binds_no_vendor_s_pod_either(
    node: VendorNode, scene: Scene, sandbox: Cluster
) -> None:
    # Of no model that the node has, so that nobody else binds it.
    pod = await node.pod("late", 1, namespace=scene.namespace, request="1(A100)")
    term = (await lease(scene.client)).spec.lease_transitions or 0
    async with Client(load_connection(kubeconfig(sandbox))) as extender:
        with pytest.raises(Forbidden, match=f'this Binding is of term "{term - 1}"'):
            await extender.bind(
                pod, node=node.name, annotations={names.TERM: str(term - 1)}, deadline_seconds=PATIENCE_SECONDS
            )


async def test_while_agent_and_extender_are_killed_no_device_is_promised_twice(
    node: VendorNode, scene: Scene, sandbox: Cluster
) -> None:
    agent = await kill(sandbox, "agent")
    await asyncio.gather(*(node.pod(f"p{at}", 1, namespace=scene.namespace) for at in range(COUNT + 2)))
    extender = await kill(sandbox, "extender")
    await running(sandbox, "extender", other_than=extender)
    await running(sandbox, "agent", other_than=agent)
    given = await node.assigned(COUNT)
    assert {uuid for each in given for uuid in each.devices} == node.uuids
    listed, _ = await scene.client.list(PODS, as_type=Pod, namespace=scene.namespace)
    assert sum(bool(pod.spec.node_name) for pod in listed) == COUNT
