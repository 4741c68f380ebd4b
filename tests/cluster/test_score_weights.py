"""Namespaces rank nodes by weights of their own, which count at once: the queue and the extender choose alike."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Event, Pod
from dovetail.api.resources import EVENTS, PODS
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.tenants import new_namespace
from tests.cluster.test_cli import main_output

pytestmark = pytest.mark.cluster

MODEL = {names.LABEL_MODEL: "V100"}
CPU_NODE, MEMORY_NODE = "v100-0", "v100-1"


@pytest.fixture
def limits(sandbox: Cluster) -> Iterator[list[str]]:
    """How `dovetail limits` is called; what a test has set is put back."""
    where = ["--kubeconfig", str(sandbox.kubeconfig)]
    yield where
    main_output("limits", "unset", *where, "namespace_score_weights")


@pytest.fixture
async def others(client: Client) -> AsyncIterator[Jobs]:
    """The GPUJobs of a second namespace."""
    async with new_namespace(client, prefix="test") as name:
        jobs = Jobs(client, namespace=name)
        yield jobs
        await jobs.clear()


def template(*, cpu: str = "100m", **selector: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    annotations = {names.RUN_SECONDS: "100000"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "nodeSelector": selector}}


async def node_of_pod(jobs: Jobs, name: str) -> str:
    """The node of a plain pod with a small share, once it is bound."""
    resources = {"limits": {names.GPU_MILLI: "100"}, "requests": {"cpu": "100m"}}
    body = {
        "metadata": {"name": name, "annotations": {names.REQUEST: "0.1", names.POLICY: "Spread"}},
        "spec": {"nodeSelector": MODEL, "containers": [{"name": "main", "image": "none", "resources": resources}]},
    }
    await jobs.client.create(PODS, body=body, as_type=Pod, namespace=jobs.namespace)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pod = await jobs.client.get(PODS, name=name, as_type=Pod, namespace=jobs.namespace)
            if (allocation := allocation_in(pod.metadata.annotations)) is not None:
                return allocation.node
            await asyncio.sleep(0.05)


async def test_two_namespaces_place_equal_jobs_and_pods_differently(
    limits: list[str], jobs: Jobs, others: Jobs
) -> None:
    # One node has most of its CPU requested, the other most of a device's memory.
    await jobs.submit("cpu", gpu=f"0.1@{CPU_NODE}/cuda:0", template=template(cpu="48"))
    await jobs.submit("memory", gpu=f"24G,0.1@{MEMORY_NODE}/cuda:0", template=template())
    for name in ("cpu", "memory"):
        await jobs.phase("Running", name)
    nothing = dict.fromkeys(("utilization", "memory", "cpu", "fragmentation"), 0)
    by_namespace = {jobs.namespace: {**nothing, "cpu": 1}, others.namespace: {**nothing, "memory": 1}}
    main_output("limits", "set", *limits, f"namespace_score_weights={by_namespace}")
    for namespaced, node in ((jobs, MEMORY_NODE), (others, CPU_NODE)):
        await namespaced.submit("small", gpu="0.1", policy="Spread", template=template(**MODEL))
        (device,) = (await namespaced.phase("Running", "small")).devices
        assert device.node == node
        # Not the device: it depends on utilization, which an ended job leaves behind for some seconds.
        assert await node_of_pod(namespaced, "small-pod") == node


async def test_weights_out_of_a_namespace_s_bounds_are_refused_in_one_sentence(
    limits: list[str], client: Client, jobs: Jobs
) -> None:
    bounds = {jobs.namespace: {"cpu": {"max": 0.5, "default": 0.5}}}
    main_output("limits", "set", *limits, f"namespace_score_weights={bounds}")
    await jobs.submit("greedy", gpu="0.1", scoreWeights={"cpu": 2})
    sentence = f'"2": must be from 0 to 0.5 in namespace {jobs.namespace}; write for example 0.5'
    found = await jobs.phase("Queued", "greedy", reason="Invalid")
    assert found.message == f"spec.scoreWeights.cpu {sentence}"
    await jobs.change("greedy", scoreWeights={"cpu": 0.5})
    await jobs.phase("Running", "greedy")
    container = {"name": "main", "image": "none", "resources": {"limits": {names.GPU_MILLI: "100"}}}
    annotations = {names.REQUEST: "0.1", names.SCORE_WEIGHTS: "cpu=2"}
    pod = {"metadata": {"name": "greedy-pod", "annotations": annotations}, "spec": {"containers": [container]}}
    await client.create(PODS, body=pod, as_type=Pod, namespace=jobs.namespace)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            said = await warnings(client, jobs.namespace)
            if any(f"{names.SCORE_WEIGHTS}.cpu {sentence}" in each for each in said):
                return
            await asyncio.sleep(0.05)


async def warnings(client: Client, namespace: str) -> list[str]:
    """What kube-scheduler says of the pods that it does not place."""
    events, _ = await client.list(EVENTS, as_type=Event, namespace=namespace)
    return [event.message for event in events if event.reason == "FailedScheduling"]
