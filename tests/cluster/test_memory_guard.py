"""Pods above their memory promise on a real control plane, under a configuration that ends them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Event, Node, Pod
from dovetail.api.resources import EVENTS, NODES, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, condition

pytestmark = pytest.mark.cluster

EXTRA_MIB = 4096


@pytest.fixture
async def take(client: Client) -> AsyncIterator[Callable[..., Any]]:
    """Let a pod use more of its own device; in the end no pod does."""
    nodes: set[str] = set()

    async def annotate(node: str, value: object) -> None:
        text = None if value is None else json.dumps(value)
        patch = {"metadata": {"annotations": {names.SIMULATED_STRANGERS: text}}}
        await client.patch(NODES, name=node, patch=patch, as_type=Node)

    async def more(pod: Pod, *, index: int) -> None:
        nodes.add(pod.spec.node_name)
        told = {"memoryMiB": EXTRA_MIB, "pod": f"{pod.metadata.namespace}/{pod.metadata.name}"}
        await annotate(pod.spec.node_name, {str(index): told})

    yield more
    for node in nodes:
        await annotate(node, None)


async def said_of(client: Client, pod: Pod) -> str:
    """What the agent told of a pod above its promise."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            events = (await client.list(EVENTS, as_type=Event, namespace=pod.metadata.namespace)).items
            for each in events:
                if each.involved_object.uid == pod.metadata.uid and each.reason == "MemoryOverPromise":
                    return each.message
            await asyncio.sleep(0.1)


async def test_a_job_above_its_promise_is_told_and_ended_with_the_numbers(
    client: Client, jobs: Jobs, take: Callable[..., Any]
) -> None:
    await jobs.submit(gpu="2G,0.25(T4)", backoffLimit=3)
    (device,) = (await jobs.phase("Running")).devices
    (pod,) = await jobs.pods()
    await take(pod, index=device.index)
    status = await jobs.phase("Failed", reason="MemoryOverPromise")
    assert f"MiB of GPU {device.index} ({device.uuid}), but was promised 2,048 MiB" in status.message
    assert condition(status, "MemoryWithinPromise") == ("False", "MemoryOverPromise")
    assert condition(status, "Failed") == ("True", "MemoryOverPromise")
    assert await jobs.announced("MemoryOverPromise")
    assert "but was promised 2,048 MiB" in await said_of(client, pod)
    await jobs.without_pods()


async def test_a_pod_of_no_job_above_its_promise_is_evicted(
    client: Client, namespace: str, take: Callable[..., Any]
) -> None:
    body = {
        "metadata": {"name": "web", "annotations": {names.REQUEST: "2G,0.25(T4)", names.RUN_SECONDS: "100000"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    await client.create(PODS, body=body, as_type=Pod, namespace=namespace)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pod = await client.get(PODS, name="web", as_type=Pod, namespace=namespace)
            if pod.status.phase == "Running":
                break
            await asyncio.sleep(0.1)
    allocation = json.loads(pod.metadata.annotations[names.ALLOCATION])
    await take(pod, index=allocation["containers"][0]["devices"][0]["index"])
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                found = await client.get(PODS, name="web", as_type=Pod, namespace=namespace)
            except NotFound:
                break
            if found.metadata.deletion_timestamp:
                break
            await asyncio.sleep(0.1)
