"""A declared pool that grows, with a small autoscaler: the test adds the nodes that placeholder pods ask for.

`test_growing` does the same with the real Karpenter, and is slow.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import yaml

from dovetail.api.builtin import Node
from dovetail.api.resources import NODES, PODS
from dovetail.kube.client import Client
from dovetail.names import LABEL_PLACEHOLDER
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from tests.cluster.configuration import config_of, set_config
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs

pytestmark = pytest.mark.cluster

POOL: Final = "l4"
LABELS: Final = {"example.com/pool": POOL}
# No other node of the sandbox has this model.
MODEL: Final = "L4"
SHAPE: Final = {
    "gpus": 2, "model": MODEL, "gpu_memory_mib": 24576, "cpu": "30", "memory": "100Gi", "max_nodes": 2,
    "labels": LABELS,
}  # fmt: skip


@pytest.fixture
async def autoscaler(client: Client, jobs: Jobs) -> AsyncIterator["Autoscaler"]:
    """The pool is declared while a test runs, and its nodes are gone afterwards."""
    before = await config_of(client)
    await set_config(client, yaml.safe_dump(yaml.safe_load(before) | {"growing": {"pools": {POOL: SHAPE}}}))
    autoscaler = Autoscaler(client)
    yield autoscaler
    await jobs.clear()
    await set_config(client, before)
    await autoscaler.remove_nodes()


class Autoscaler:
    """Adds one node for each placeholder, as the cluster autoscaler does for pods that fill a node each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes: list[str] = []

    async def placeholders(self, jobs: Jobs, *, count: int) -> list[dict[str, Any]]:
        """The unschedulable placeholders of a namespace, once there are so many."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                pods, _ = await self._client.list(
                    PODS, as_type=dict[str, Any], namespace=jobs.namespace, label_selector=LABEL_PLACEHOLDER
                )
                if len(pods) == count and all(map(_is_unschedulable, pods)):
                    return list(pods)
                await asyncio.sleep(0.05)

    async def add_node(self, pod: dict[str, Any]) -> None:
        """Add a node with the labels that the pod asks for."""
        name = name_of_node(pod)
        node = SimulatedNode(
            name=name, cpu_milli=30_000, memory_mib=102_400, model=MODEL, devices=2, device_memory_mib=24_576
        )
        body = kwok.manifest(node)
        body["metadata"]["labels"] |= pod["spec"]["nodeSelector"]
        await self._client.create(NODES, body=body, as_type=Node)
        self._nodes.append(name)

    async def remove_nodes(self) -> None:
        """Remove the nodes that it added."""
        for name in self._nodes:
            await self._client.delete(NODES, name=name)


def name_of_node(pod: dict[str, Any]) -> str:
    return f"{POOL}-{pod['metadata']['uid']}"


def _is_unschedulable(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


async def test_a_gang_waits_for_new_nodes_runs_on_them_and_its_placeholders_go(
    jobs: Jobs, autoscaler: Autoscaler
) -> None:
    await jobs.submit(gpu=f"2({MODEL})", workers=2)
    status = await jobs.phase("Queued", reason="Provisioning")
    assert status.message.startswith(f"2 nodes of pool {POOL} requested at ")
    placeholders = await autoscaler.placeholders(jobs, count=2)
    assert all(pod["spec"]["nodeSelector"].items() >= LABELS.items() for pod in placeholders)
    await autoscaler.add_node(placeholders[0])
    await autoscaler.add_node(placeholders[1])
    status = await jobs.until("x", lambda status: status.workers_ready == 2)
    assert {device.node for device in status.devices} == {name_of_node(pod) for pod in placeholders}
    assert status.provisioning is None
    await autoscaler.placeholders(jobs, count=0)


async def test_a_cancelled_job_takes_its_placeholders_along(jobs: Jobs, autoscaler: Autoscaler) -> None:
    await jobs.submit(gpu=f"2({MODEL})")
    await autoscaler.placeholders(jobs, count=1)
    await jobs.change(cancel=True)
    await jobs.phase("Cancelled")
    await autoscaler.placeholders(jobs, count=0)


async def test_a_job_too_large_for_the_pool_never_fits(jobs: Jobs, autoscaler: Autoscaler) -> None:
    await jobs.submit("fits", gpu=f"2({MODEL})")
    await jobs.phase("Queued", "fits", reason="Provisioning")
    await jobs.submit("never", gpu=f"2({MODEL})", workers=3)
    await jobs.phase("Queued", "never", reason="ExceedsCapacity")
    await autoscaler.placeholders(jobs, count=1)
