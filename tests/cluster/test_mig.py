"""MIG instances as requests: on a node that Dovetail manages by UUID, on a vendor's node by its resource."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import Device, GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode, declared
from tests.cluster.jobs import Jobs
from tests.cluster.test_extender import Scene, until

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs/mig.md"
TOLERATIONS = [{"key": "test-mig", "operator": "Exists"}]


class PartitionedNode:
    """A node of A100s, the first of them partitioned."""

    def __init__(self, client: Client, *, partitions: tuple[str, ...], resource: str = "") -> None:
        self.client = client
        self.node = SimulatedNode(
            name=f"mig-{uuid.uuid4().hex[:8]}", cpu_milli=64_000, memory_mib=262_144, model="A100",
            devices=len(partitions) + 1, device_memory_mib=40_960, resource=resource, mig=partitions,
        )  # fmt: skip
        self.place: dict[str, Any] = {
            "nodeSelector": {"kubernetes.io/hostname": self.node.name}, "tolerations": TOLERATIONS,
        }  # fmt: skip

    async def create(self) -> None:
        taint = {"key": "test-mig", "effect": "NoSchedule"}
        body = kwok.manifest(self.node) | {"spec": {"taints": [taint]}}
        await self.client.create(NODES, body=body, as_type=Node)
        await until(self._gpunodes, lambda found: any(each.status.devices for each in found))

    async def delete(self) -> None:
        await self.client.delete(NODES, name=self.node.name)
        await until(self._gpunodes, lambda found: not found)

    async def instances(self, profile: str) -> set[str]:
        return {device.uuid for device in await self._devices() if device.mig_profile == profile}

    async def _devices(self) -> list[Device]:
        (gpunode,) = await self._gpunodes()
        return gpunode.status.devices

    async def _gpunodes(self) -> list[GPUNode]:
        named = f"metadata.name={self.node.name}"
        listed, _ = await self.client.list(GPUNODES, as_type=GPUNode, field_selector=named)
        return listed

    def template(self) -> dict[str, Any]:
        spec = {"containers": [{"name": "main", "image": "busybox"}], **self.place}
        return {"metadata": {"annotations": {names.RUN_SECONDS: "100000"}}, "spec": spec}

    async def pod(self, name: str, request: str, *, namespace: str) -> Pod:
        body = {
            "metadata": {"name": name, "annotations": {names.REQUEST: request}},
            "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "none"}], **self.place,
            },
        }  # fmt: skip
        return await self.client.create(PODS, body=body, as_type=Pod, namespace=namespace)


@pytest.fixture
async def managed(client: Client) -> AsyncIterator[PartitionedNode]:
    node = PartitionedNode(client, partitions=("7x1g.5gb", "2x3g.20gb"))
    await node.create()
    yield node
    await node.delete()


@pytest.fixture
async def by_plugin(client: Client) -> AsyncIterator[PartitionedNode]:
    node = PartitionedNode(client, partitions=("1x3g.20gb,2x2g.10gb",), resource="nvidia.com/gpu")
    await node.create()
    yield node
    await node.delete()


@pytest.fixture
async def scene(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Scene]:
    scene = Scene(client, namespace=namespace, sandbox=sandbox)
    yield scene
    await scene.clear()


async def test_a_gpujob_gets_instances_of_a_managed_node_by_uuid(managed: PartitionedNode, jobs: Jobs) -> None:
    await jobs.submit(gpu="2x3g.20gb", template=managed.template())
    status = await jobs.until("x", lambda status: status.phase == "Running" and len(status.devices) == 2)
    assert status.request == "2x3g.20gb"
    assert {device.uuid for device in status.devices} == await managed.instances("3g.20gb")
    (pod,) = await jobs.pods()
    shown = pod.metadata.annotations[names.per_container(names.VISIBLE_DEVICES, index=0)]
    assert set(shown.split(",")) == await managed.instances("3g.20gb")
    await jobs.submit("y", gpu="3g.20gb", template=managed.template())
    waiting = await jobs.phase("Queued", "y", reason="Resources")
    assert waiting.message.startswith("Need 1 instance of 3g.20gb, only 0 available")
    await jobs.delete("x")
    await jobs.phase("Running", "y")


async def test_a_gpu_and_the_instances_of_others_stay_apart(managed: PartitionedNode, jobs: Jobs) -> None:
    await jobs.submit("small", gpu="1g.5gb", workers=7, template=managed.template())
    await jobs.submit("whole", gpu=1, template=managed.template())
    small = await jobs.until("small", lambda status: status.phase == "Running" and len(status.devices) == 7)
    whole = await jobs.until("whole", lambda status: status.phase == "Running" and len(status.devices) == 1)
    assert {device.uuid for device in small.devices} == await managed.instances("1g.5gb")
    assert whole.devices[0].uuid.startswith("GPU-")
    await jobs.submit("second", gpu=1, template=managed.template())
    waiting = await jobs.phase("Queued", "second", reason="Resources")
    assert waiting.message.startswith("Need 1 GPU, only 0 available")


async def test_a_gpujob_gets_instances_of_a_vendor_s_node_by_its_resource(
    by_plugin: PartitionedNode, jobs: Jobs
) -> None:
    await jobs.submit(gpu="2x2g.10gb", template=by_plugin.template())
    status = await jobs.phase("Running")
    assert (status.nodes, status.request) == ([by_plugin.node.name], "2x2g.10gb")
    (pod,) = await jobs.pods()
    assert pod.spec.containers[0].resources.limits["nvidia.com/mig-2g.10gb"] == "2"
    assert allocation_in(pod.metadata.annotations) is None
    await jobs.submit("y", gpu="2g.10gb", template=by_plugin.template())
    waiting = await jobs.phase("Queued", "y", reason="Resources")
    assert waiting.message.startswith("Need 1 instance of 2g.10gb, only 0 available")


async def test_a_profile_that_no_node_has_is_refused_with_those_that_exist(
    managed: PartitionedNode, jobs: Jobs
) -> None:
    await jobs.submit(gpu="7g.80gb", template=managed.template())
    status = await jobs.phase("Queued", reason="ExceedsCapacity")
    assert "no node has a MIG instance of 7g.80gb, there is 1g.5gb, 3g.20gb" in status.message


async def test_a_plain_pod_gets_an_instance_by_its_annotation(managed: PartitionedNode, scene: Scene) -> None:
    await managed.pod("notebook", "1g.5gb", namespace=scene.namespace)
    pod = await scene.is_bound("notebook")
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    (device,) = allocation.devices
    assert device.uuid in await managed.instances("1g.5gb")


def examples() -> list[Any]:
    """The YAML of the page: a GPUJob, the values that allow to partition GPUs again, and the nodes of a sandbox."""
    blocks = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [yaml.safe_load(block.split("```")[0]) for block in blocks]


async def test_the_example_of_the_page_runs_on_nodes_as_the_page_declares_them(
    managed: PartitionedNode, jobs: Jobs
) -> None:
    job, _, nodes = examples()
    declared_nodes = declared(yaml.safe_dump(nodes))
    assert [node.mig for node in declared_nodes] == [managed.node.mig, ("1x3g.20gb,2x2g.10gb",)]
    await jobs.submit(gpu=job["spec"]["gpu"], template=managed.template())
    status = await jobs.until("x", lambda status: status.phase == "Running" and len(status.devices) == 2)
    assert {device.uuid for device in status.devices} == await managed.instances("3g.20gb")


async def test_the_fields_are_stored_as_they_are_and_ask_what_the_text_would(
    managed: PartitionedNode, jobs: Jobs
) -> None:
    resources = {"count": 2, "migProfile": "1g.5gb", "models": ["A100"]}
    await jobs.submit(gpu=None, resources=resources, template=managed.template())
    status = await jobs.phase("Running")
    assert status.request == "2x1g.5gb(A100)"
    assert (await jobs.spec())["resources"]["migProfile"] == "1g.5gb"


async def test_a_text_that_is_no_profile_and_mixed_fields_are_refused(managed: PartitionedNode, jobs: Jobs) -> None:
    with pytest.raises(KubeError, match="is no request"):
        await jobs.submit(gpu="8g.80gb", template=managed.template())
    mixed = {"migProfile": "1g.5gb", "share": 0.5}
    with pytest.raises(KubeError, match="a MIG profile goes with count and models alone"):
        await jobs.submit(gpu=None, resources=mixed, template=managed.template())
