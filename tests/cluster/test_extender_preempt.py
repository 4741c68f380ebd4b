"""Preemption by the real kube-scheduler with real PriorityClasses: victims by device and of the own namespace.

Never a GPUJob's pod.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.resources import PODDISRUPTIONBUDGETS, PODS, PRIORITYCLASSES
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs
from tests.cluster.test_extender import Scene, scene, until

pytestmark = pytest.mark.cluster

__all__ = ["scene"]

CLASSES = {"test-low": 100, "test-mid": 200, "test-high": 300}


@pytest.fixture
async def classes(client: Client) -> AsyncIterator[None]:
    for name, value in CLASSES.items():
        with suppress(AlreadyExists):
            body = {"metadata": {"name": name}, "value": value}
            await client.create(PRIORITYCLASSES, body=body, as_type=dict[str, Any])
    yield
    for name in CLASSES:
        await client.delete(PRIORITYCLASSES, name=name)


async def create(scene: Scene, name: str, gpu: str, *, milli: int, priority: str = "") -> None:
    """A pod for the two A100 of the sandbox."""
    resources = {"limits": {names.GPU_MILLI: str(milli)}}
    body = {
        # By Pack, which does not mind how warm the devices still are after what was there before.
        "metadata": {"name": name, "annotations": {names.REQUEST: gpu, names.POLICY: "Pack"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            **({"priorityClassName": priority} if priority else {}),
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }
    await scene.client.create(PODS, body=body, as_type=Pod, namespace=scene.namespace)


async def device_of(scene: Scene, name: str) -> str:
    allocation = allocation_in((await scene.is_bound(name)).metadata.annotations)
    assert allocation is not None
    return allocation.devices[0].uuid


async def is_there(scene: Scene, name: str) -> bool:
    try:
        pod = await scene.client.get(PODS, name=name, as_type=Pod, namespace=scene.namespace)
    except NotFound:
        return False
    return pod.metadata.deletion_timestamp is None


@pytest.mark.usefixtures("classes")
async def test_for_a_whole_device_those_who_share_one_leave_and_not_those_whom_the_sums_would_pick(
    scene: Scene,
) -> None:
    """By sums and priority kube-scheduler would evict `a` and `d`, one of each device."""
    for name, priority in (("a", "low"), ("b", "mid"), ("c", "mid"), ("d", "low")):
        await create(scene, name, "0.5(A100)", milli=500, priority=f"test-{priority}")
        await scene.is_bound(name)
    devices = {name: await device_of(scene, name) for name in "abcd"}
    assert devices["a"] == devices["b"] != devices["c"] == devices["d"]
    await create(scene, "urgent", "1(A100)", milli=1000, priority="test-high")
    taken = await device_of(scene, "urgent")
    left = [name for name in "abcd" if await is_there(scene, name)]
    assert len(left) == 2
    assert all(devices[name] != taken for name in left)


@pytest.mark.usefixtures("classes")
async def test_pods_of_gpujobs_are_not_evicted_for_a_pod_of_higher_priority(client: Client, scene: Scene) -> None:
    jobs = Jobs(client, namespace=scene.namespace)
    await jobs.submit("train", gpu="2(A100)")
    await jobs.phase("Running", "train")
    before = [pod.metadata.uid for pod in await jobs.pods("train")]
    await create(scene, "urgent", "1(A100)", milli=1000, priority="test-high")
    await scene.events("preemption")
    # kube-scheduler takes up a pod once it is through with the one before, its evictions included.
    await create(scene, "next", "1(T4)", milli=1000, priority="test-low")
    await scene.is_bound("next")
    assert [pod.metadata.uid for pod in await jobs.pods("train")] == before
    assert (
        await client.get(PODS, name="urgent", as_type=Pod, namespace=scene.namespace)
    ).status.nominated_node_name == ""
    await jobs.delete("train")
    await until(lambda: jobs.pods("train"), lambda pods: not pods)
    await scene.is_bound("urgent")


@pytest.mark.usefixtures("classes")
async def test_a_pod_whose_budget_lets_no_pod_end_is_not_evicted(client: Client, scene: Scene) -> None:
    """kube-scheduler by itself would evict it, because nothing else makes room."""
    await create(scene, "service", "2(A100)", milli=2000, priority="test-low")
    before = await scene.is_bound("service")
    # It covers `next` too, which runs later.
    budget = {"metadata": {"name": "service"}, "spec": {"minAvailable": 2, "selector": {}}}
    await client.create(PODDISRUPTIONBUDGETS, body=budget, as_type=PodDisruptionBudget, namespace=scene.namespace)

    async def service() -> PodDisruptionBudget:
        return await client.get(
            PODDISRUPTIONBUDGETS, name="service", as_type=PodDisruptionBudget, namespace=scene.namespace
        )

    await until(service, lambda found: found.status.observed_generation == 1)
    await create(scene, "urgent", "1(A100)", milli=1000, priority="test-high")
    await scene.events("preemption")
    # kube-scheduler takes up a pod once it is through with the one before, its evictions included.
    await create(scene, "next", "1(T4)", milli=1000, priority="test-low")
    await scene.is_bound("next")
    now = await client.get(PODS, name="service", as_type=Pod, namespace=scene.namespace)
    assert (now.metadata.uid, now.metadata.deletion_timestamp) == (before.metadata.uid, None)
    await client.delete(PODDISRUPTIONBUDGETS, name="service", namespace=scene.namespace)
    with suppress(NotFound):
        # Or kube-scheduler has tried again, and has evicted it.
        await client.delete(PODS, name="service", namespace=scene.namespace)
    await scene.is_bound("urgent")


async def test_a_critical_pod_of_another_namespace_evicts_no_pod_with_devices(
    client: Client, scene: Scene, mallory: Client, canary: str, sandbox: Cluster
) -> None:
    """Every cluster has `system-cluster-critical`, and each user who may create pods may name it."""
    victor = Scene(client, namespace=canary, sandbox=sandbox)
    await create(victor, "notebook", "2(A100)", milli=2000)
    before = await victor.is_bound("notebook")
    attack = Scene(mallory, namespace=scene.namespace, sandbox=sandbox)
    await create(attack, "urgent", "2(A100)", milli=2000, priority="system-cluster-critical")
    await scene.events("preemption")
    # kube-scheduler takes up a pod once it is through with the one before, its evictions included.
    await create(scene, "next", "1(T4)", milli=1000)
    await scene.is_bound("next")
    now = await client.get(PODS, name="notebook", as_type=Pod, namespace=canary)
    assert (now.metadata.uid, now.metadata.deletion_timestamp) == (before.metadata.uid, None)
    urgent = await client.get(PODS, name="urgent", as_type=Pod, namespace=scene.namespace)
    assert urgent.status.nominated_node_name == ""
    await victor.clear()
    await scene.is_bound("urgent")
