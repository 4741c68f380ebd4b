"""Beside the real Kueue and the real JobSet: who lets a job go, who gives it devices, and who leaves whom alone.

Its own sandbox, `dovetail sandbox up --with kueue --with jobset`; a build of both takes a quarter of an hour, so that
this belongs to `make e2e`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.resources import GPUJOBS, JOBS, PODS, Resource
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import NODES, OVERRIDES
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, manifest
from tests.cluster.kueue import CLUSTERQUEUES, FLAVORS, PRIORITIES, PRIORITY, QUEUE_NAME, WORKLOADS, make_queue
from tests.cluster.sandboxes import sandbox_with

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

JOBSETS = Resource(group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", kind="JobSet")
DEPLOYMENTS = Resource(group="apps", plural="deployments", kind="Deployment")
TEAM = {QUEUE_NAME: "team"}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """A sandbox with both beside Dovetail."""
    with sandbox_with(nodes_file=NODES, overrides=OVERRIDES, with_=["kueue", "jobset"]) as found:
        yield found


@pytest.fixture
async def one_gpu(client: Client, namespace: str) -> AsyncIterator[None]:
    """The namespace has Kueue's queue `team`, with one GPU."""
    await make_queue(client, namespace=namespace, gpus=1)
    yield
    await client.delete(CLUSTERQUEUES, name=namespace)
    await client.delete(FLAVORS, name=namespace)


async def submit(jobs: Jobs, name: str, labels: dict[str, str], **spec: Any) -> None:
    wanted = manifest(name, **spec)
    wanted["metadata"]["labels"] = labels
    await jobs.client.create(GPUJOBS, body=wanted, as_type=GPUJob, namespace=jobs.namespace)


def waits_for_quota(status: GPUJobStatus) -> bool:
    return status.reason == "ExternallyManaged" and "dovetail.dev/gpu-milli" in status.message


async def pods_with_devices(jobs: Jobs, *, count: int) -> list[Pod]:
    """All pods of the namespace, once so many of them have devices."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods, _ = await jobs.client.list(PODS, as_type=Pod, namespace=jobs.namespace)
            held = [pod for pod in pods if allocation_in(pod.metadata.annotations) is not None]
            if len(held) == count:
                return held
            await asyncio.sleep(0.05)


async def condition_of(jobs: Jobs, resource: Resource, name: str, holds: Callable[[set[str]], bool]) -> None:
    """Wait until the conditions that hold of an object are as they should be."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await jobs.client.get(resource, name=name, as_type=dict[str, Any], namespace=jobs.namespace)
            conditions = found.get("status", {}).get("conditions", [])
            if holds({each["type"] for each in conditions if each["status"] == "True"}):
                return
            await asyncio.sleep(0.05)


async def workloads(jobs: Jobs) -> list[dict[str, Any]]:
    found, _ = await jobs.client.list(WORKLOADS, as_type=dict[str, Any], namespace=jobs.namespace)
    return found


@pytest.mark.usefixtures("one_gpu")
async def test_kueue_lets_one_job_go_after_the_other_and_we_choose_the_devices(jobs: Jobs) -> None:
    await submit(jobs, "first", TEAM)
    status = await jobs.phase("Running", "first")
    assert len(status.devices) == 1
    await submit(jobs, "second", TEAM)
    status = await jobs.until("second", waits_for_quota)
    assert status.phase == "Queued"
    assert status.message.startswith("Waits until Kueue lets it go from the queue team: ")
    assert "insufficient unused quota" in status.message
    # The first ends, as its user would end it; Kueue gives its quota to the second.
    await jobs.change("first", cancel=True)
    assert len((await jobs.phase("Running", "second")).devices) == 1
    assert (await jobs.phase("Cancelled", "first")).retries == 0


@pytest.mark.usefixtures("one_gpu")
async def test_a_job_that_ends_makes_room_in_kueues_quota(jobs: Jobs) -> None:
    await submit(jobs, "first", TEAM, run=1)
    await submit(jobs, "second", TEAM, run=1)
    await jobs.phase("Succeeded", "first")
    await jobs.phase("Succeeded", "second")


@pytest.fixture
async def urgent(client: Client, namespace: str) -> AsyncIterator[dict[str, str]]:
    """Labels of a job that Kueue prefers to those without a priority class of Kueue's."""
    await client.create(PRIORITIES, body={"metadata": {"name": namespace}, "value": 1_000_000}, as_type=dict[str, Any])
    yield {**TEAM, PRIORITY: namespace}
    await client.delete(PRIORITIES, name=namespace)


@pytest.mark.usefixtures("one_gpu")
async def test_a_job_that_kueue_preempts_goes_back_and_loses_no_retry(jobs: Jobs, urgent: dict[str, str]) -> None:
    await submit(jobs, "low", TEAM, backoffLimit=1)
    await jobs.phase("Running", "low")
    before = await jobs.child("low")
    await submit(jobs, "high", urgent)
    await jobs.phase("Running", "high")
    status = await jobs.until("low", waits_for_quota)
    assert (status.phase, status.devices) == ("Queued", [])
    assert "Preempted" in status.message
    await jobs.delete("high")
    status = await jobs.phase("Running", "low")
    assert (len(status.devices), status.retries) == (1, 0)
    assert (await jobs.child("low")).metadata.uid == before.metadata.uid, "it has kept its place in Kueue's queue"


async def test_a_gang_is_let_go_as_a_whole(client: Client, jobs: Jobs, namespace: str) -> None:
    await make_queue(client, namespace=namespace, gpus=3)
    try:
        await submit(jobs, "first", TEAM, workers=2)
        await jobs.until("first", lambda status: status.workers_ready == 2)
        await submit(jobs, "second", TEAM, workers=2)
        await jobs.until("second", waits_for_quota)
        assert await jobs.pods("second") == []
        await jobs.delete("first")
        assert len((await jobs.until("second", lambda status: status.workers_ready == 2)).devices) == 2
    finally:
        await client.delete(CLUSTERQUEUES, name=namespace)
        await client.delete(FLAVORS, name=namespace)


@pytest.mark.usefixtures("one_gpu")
async def test_with_the_gpujob_goes_what_kueue_made_for_it(jobs: Jobs) -> None:
    await submit(jobs, "x", TEAM)
    await jobs.phase("Running")
    assert len(await workloads(jobs)) == 1
    await jobs.delete()
    await jobs.gone(JOBS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await workloads(jobs):  # noqa: ASYNC110 - another program changes it
            await asyncio.sleep(0.05)


async def test_a_queue_that_there_is_not_is_said_and_another_can_be_named(
    client: Client, jobs: Jobs, namespace: str
) -> None:
    await submit(jobs, "x", {QUEUE_NAME: "nowhere"})
    await jobs.until("x", lambda status: "LocalQueue nowhere doesn't exist" in status.message)
    await client.patch(
        GPUJOBS,
        name="x",
        patch={"metadata": {"labels": {QUEUE_NAME: None}}},
        as_type=dict[str, Any],
        namespace=namespace,
    )
    # Back in our own queue, which has room.
    await jobs.phase("Running")
    assert QUEUE_NAME not in (await jobs.child()).metadata.labels


async def test_where_kueue_takes_every_job_ours_go_along(client: Client, jobs: Jobs, namespace: str) -> None:
    """Kueue puts new Jobs of a namespace that has a queue named default into that."""
    await make_queue(client, namespace=namespace, gpus=1, name="default")
    try:
        await until_default(jobs)
        await submit(jobs, "first", {})
        await jobs.phase("Running", "first")
        await submit(jobs, "second", {})
        await jobs.until("second", waits_for_quota)
        found = await client.get(GPUJOBS, name="second", as_type=GPUJob, namespace=namespace)
        assert found.metadata.labels[QUEUE_NAME] == "default"
        await jobs.delete("first")
        await jobs.phase("Running", "second")
    finally:
        await client.delete(CLUSTERQUEUES, name=namespace)
        await client.delete(FLAVORS, name=namespace)


async def until_default(jobs: Jobs) -> None:
    """Wait until Kueue has noticed the queue: it labels a Job that is only tried."""
    probe = {"metadata": {"generateName": "probe-"}, "spec": {"template": template(), "suspend": True}}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            made = await jobs.client.create(JOBS, body=probe, as_type=dict[str, Any], namespace=jobs.namespace)
            await jobs.client.delete(JOBS, name=made["metadata"]["name"], namespace=jobs.namespace)
            if QUEUE_NAME in made["metadata"].get("labels", {}):
                return


def template(*, restart: str = "Never", **labels: str) -> dict[str, Any]:
    """A pod that asks by annotation and runs until it is deleted, as people write it."""
    return {
        "metadata": {
            "labels": labels,
            "annotations": {"dovetail.dev/gpu": "8G,0.25", "sandbox.dovetail.dev/run-seconds": str(FOR_EVER)},
        },
        "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "busybox"}]},
    }


def jobset(*, labels: dict[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    job = {"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod}}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"name": "x", "labels": labels},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": job}]},
    }


async def test_a_jobset_and_a_deployment_that_ask_by_annotation_get_devices(client: Client, jobs: Jobs) -> None:
    deployment = {
        "metadata": {"name": "server"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "server"}},
            "template": template(restart="Always", app="server"),
        },
    }
    wanted = jobset(labels={}, pod=template())
    await client.create(JOBSETS, body=wanted, as_type=dict[str, Any], namespace=jobs.namespace)
    await client.create(DEPLOYMENTS, body=deployment, as_type=dict[str, Any], namespace=jobs.namespace)
    pods = await pods_with_devices(jobs, count=4 + 2)
    owners = {owner.kind for pod in pods for owner in pod.metadata.owner_references}
    assert owners == {"Job", "ReplicaSet"}
    found, _ = await client.list(GPUJOBS, as_type=GPUJob, namespace=jobs.namespace)
    assert found == []
    await client.delete(JOBSETS, name="x", namespace=jobs.namespace)
    await client.delete(DEPLOYMENTS, name="server", namespace=jobs.namespace)
    await jobs.gone(JOBSETS)


@pytest.mark.usefixtures("one_gpu")
async def test_a_jobset_in_kueues_queue_is_counted_by_its_resources(client: Client, jobs: Jobs) -> None:
    """What the webhook would add to its pods Kueue cannot see: the template names the resources itself."""
    pod = template()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"dovetail.dev/gpu-milli": "250"}}
    pod["metadata"]["annotations"]["dovetail.dev/gpu"] = "0.25"
    wanted = jobset(labels=TEAM, pod=pod)
    await client.create(JOBSETS, body=wanted, as_type=dict[str, Any], namespace=jobs.namespace)
    await pods_with_devices(jobs, count=4)
    await submit(jobs, "x", TEAM)
    await jobs.until("x", waits_for_quota)
    await client.delete(JOBSETS, name="x", namespace=jobs.namespace)
    await jobs.phase("Running")


async def test_what_others_manage_is_left_alone(client: Client, jobs: Jobs) -> None:
    """A Job and a GPUJob of another controller: nothing is written on them while we do other work."""
    theirs = {"metadata": {"name": "plain"}, "spec": {"template": template(), "managedBy": "example.com/other"}}
    await client.create(JOBS, body=theirs, as_type=dict[str, Any], namespace=jobs.namespace)
    await submit(jobs, "far", TEAM, managedBy=MULTIKUEUE)
    before = [await everything(client, jobs, JOBS, "plain"), await everything(client, jobs, GPUJOBS, "far")]
    await jobs.submit("ours", run=1)
    await jobs.phase("Succeeded", "ours")
    after = [await everything(client, jobs, JOBS, "plain"), await everything(client, jobs, GPUJOBS, "far")]
    assert after == before
    pods, _ = await client.list(PODS, as_type=Pod, namespace=jobs.namespace)
    assert {pod.metadata.labels.get("dovetail.dev/job") for pod in pods} == {"ours"}
    assert await workloads(jobs) == []
    await client.delete(JOBS, name="plain", namespace=jobs.namespace)


async def everything(client: Client, jobs: Jobs, resource: Resource, name: str) -> Any:
    found = await client.get(resource, name=name, as_type=msgspec.Raw, namespace=jobs.namespace)
    return bytes(found)
