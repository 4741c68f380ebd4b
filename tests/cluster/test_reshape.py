"""An idle GPU in MIG mode is partitioned again for a job that waits, and never under a tenant."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import yaml

from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES
from dovetail.kube.client import Client
from tests.cluster.configuration import config_of, set_config
from tests.cluster.jobs import Jobs
from tests.cluster.test_mig import PartitionedNode

pytestmark = pytest.mark.cluster

# Far more than the rules ask for.
QUIET_SECONDS = 8.0


@pytest.fixture
async def node(client: Client) -> AsyncIterator[PartitionedNode]:
    """A node with one GPU in seven instances, which the configuration lets be partitioned again."""
    node = PartitionedNode(client, partitions=("7x1g.5gb",))
    before = await config_of(client)
    rules = {
        "enabled": True,
        "node_labels": {"kubernetes.io/hostname": node.node.name},
        "after": 1,
        "idle_for": 2,
        "cooldown": 0,
    }
    await set_config(client, yaml.safe_dump((yaml.safe_load(before) or {}) | {"mig_reshape": rules}))
    await node.create()
    yield node
    await set_config(client, before)
    await node.delete()


async def gpunode(client: Client, node: PartitionedNode) -> GPUNode:
    return await client.get(GPUNODES, name=node.node.name, as_type=GPUNode)


async def test_an_idle_gpu_is_partitioned_for_a_waiting_job_and_not_under_a_tenant(
    client: Client, node: PartitionedNode, jobs: Jobs
) -> None:
    await jobs.submit("tenant", gpu="1g.5gb", template=node.template())
    tenant = await jobs.until("tenant", lambda status: status.phase == "Running" and len(status.devices) == 1)
    await jobs.submit("x", gpu="3g.20gb", template=node.template())
    await jobs.phase("Queued", reason="ExceedsCapacity")
    await asyncio.sleep(QUIET_SECONDS)
    found = await gpunode(client, node)
    assert found.spec.reshape == {}
    assert tenant.devices[0].uuid in {device.uuid for device in found.status.devices}

    await jobs.delete("tenant")
    waiting = await jobs.until("x", lambda status: "reshaping" in (status.message or ""))
    assert f"reshaping GPU 0 of node {node.node.name} into 3g.20gb + 4 x 1g.5gb" in waiting.message
    running = await jobs.until("x", lambda status: status.phase == "Running" and len(status.devices) == 1)
    assert {device.uuid for device in running.devices} == await node.instances("3g.20gb")
    assert len(await node.instances("1g.5gb")) == 4
    assert (await gpunode(client, node)).spec.reshape == {}
