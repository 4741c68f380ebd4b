"""The real KubeRay: RayClusters and RayJobs wait in the queue. Only Ray itself, in the containers, has a stand-in.

A build takes minutes, so that this belongs to `make e2e`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.resources import GPUJOBS, JOBS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster import ray_dashboard
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.kinds import RAYCLUSTERS, RAYJOBS
from tests.cluster.projects import KUBERAY, at_work, installed
from tests.cluster.ray_dashboard import RayDashboard
from tests.cluster.test_guest_kinds import hold_and_release, written
from tests.cluster.test_guests import Guests
from tests.core.jobs.guests.examples import EXPECTED

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def until_gone(client: Client, resource: Resource, *, name: str, namespace: str) -> None:
    """Delete an object, and wait until KubeRay has removed its finalizer."""
    with suppress(NotFound):
        await client.delete(resource, name=name, namespace=namespace)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await client.get(resource, name=name, as_type=dict[str, Any], namespace=namespace)
                await asyncio.sleep(0.1)


@pytest.fixture
async def ray(client: Client, namespace: str, sandbox: Cluster, tmp_path: Path) -> AsyncIterator[RayDashboard]:
    """KubeRay is at work in the test's namespace; gives the stand-in of Ray's dashboard."""
    metrics, health = free_ports(count=2)
    arguments = (
        f"--watch-namespace={namespace}",
        "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
    )
    async with ray_dashboard.serving() as dashboard, installed(client, projects=(KUBERAY,)):
        environment = {"HTTP_PROXY": dashboard.url, "http_proxy": dashboard.url, "NO_PROXY": "", "no_proxy": ""}
        async with at_work(
            KUBERAY,
            client,
            cluster=sandbox,
            namespace=namespace,
            arguments=arguments,
            environment=environment,
            folder=tmp_path,
        ):
            yield dashboard


@pytest.fixture
async def guests(client: Client, jobs: Jobs, ray: RayDashboard) -> AsyncIterator[Guests]:
    # KubeRay is still at work when they are deleted: it removes their finalizers.
    assert ray.url
    made = Guests(client, namespace=jobs.namespace)
    yield made
    for resource, name in made.made:
        await until_gone(client, resource, name=name, namespace=made.namespace)
    # The garbage collector learns of new kinds twice a minute only, and the Jobs that submit belong to RayJobs.
    for each in (await client.list(JOBS, as_type=Job, namespace=made.namespace)).items:
        await client.delete(JOBS, name=each.metadata.name, namespace=made.namespace)
    await made.clear()


def of_cluster(pods: list[Pod]) -> list[Pod]:
    """Those that are not KubeRay's submitter."""
    return [pod for pod in pods if "ray.io/cluster" in pod.metadata.labels]


def cluster_runs(pods: list[Pod], *, count: int) -> bool:
    found = of_cluster(pods)
    return len(found) == count and all(pod.status.phase == "Running" for pod in found)


async def submitter_of(guests: Guests) -> Pod:
    """The pod with which KubeRay submits the program."""
    pods = await guests.until_pods(lambda pods: len(pods) > len(of_cluster(pods)))
    return next(pod for pod in pods if not of_cluster([pod]))


async def runs(guests: Guests, jobs: Jobs, *, kind: str) -> None:
    """Each worker of the example is on the device of its seat, and the head is without one."""
    expected = EXPECTED[kind]
    await jobs.there(GPUJOBS, expected.name)
    running = await jobs.until(expected.name, lambda status: status.workers_ready == expected.workers)
    assert len({(device.node, device.uuid) for device in running.devices}) == expected.workers
    pods = of_cluster(await guests.until_pods(partial(cluster_runs, count=expected.pods)))
    allocated = {pod.metadata.labels["ray.io/node-type"]: allocation_in(pod.metadata.annotations) for pod in pods}
    assert allocated["head"] is None
    assert allocated["worker"] is not None
    assert allocated["worker"].job == expected.name


async def test_a_raycluster_is_held_runs_on_its_plan_and_returns(guests: Guests, jobs: Jobs) -> None:
    made = await guests.make(written(RAYCLUSTERS), resource=RAYCLUSTERS)
    assert made["spec"]["suspend"] is True
    await runs(guests, jobs, kind="RayCluster")
    await hold_and_release(guests, jobs, expected=EXPECTED["RayCluster"])


async def test_a_rayjob_is_held_runs_on_its_plan_returns_and_ends(
    guests: Guests, jobs: Jobs, ray: RayDashboard
) -> None:
    made = await guests.make(written(RAYJOBS), resource=RAYJOBS)
    assert made["spec"]["suspend"] is True
    await runs(guests, jobs, kind="RayJob")
    found, _ = await guests.client.list(GPUJOBS, as_type=dict[str, Any], namespace=guests.namespace)
    assert [each["metadata"]["name"] for each in found] == ["rayjob-tune"], "its RayCluster has the RayJob's turn"
    await hold_and_release(guests, jobs, expected=EXPECTED["RayJob"])
    submitter = await submitter_of(guests)
    assert names.RUN not in submitter.metadata.labels, "the pod that submits the program has no seat"
    ray.status = "SUCCEEDED"
    if submitter.status.phase != "Succeeded":
        await jobs.end_pod(submitter, exit_code=0)
    await jobs.phase("Succeeded", "rayjob-tune")
    await guests.until_pods(lambda pods: not of_cluster(pods))


async def test_a_program_that_fails_fails_the_rayjob_and_its_record(
    guests: Guests, jobs: Jobs, ray: RayDashboard
) -> None:
    await guests.make(written(RAYJOBS), resource=RAYJOBS)
    await runs(guests, jobs, kind="RayJob")
    submitter = await submitter_of(guests)
    ray.status = "FAILED"
    if submitter.status.phase == "Running":
        await jobs.end_pod(submitter, exit_code=0)
    await jobs.phase("Failed", "rayjob-tune")


async def test_a_raycluster_waits_with_a_reason_and_without_a_pod(guests: Guests, jobs: Jobs) -> None:
    await jobs.submit("first", workers=13)
    await jobs.phase("Running", "first")
    await guests.make(written(RAYCLUSTERS), resource=RAYCLUSTERS)
    await jobs.there(GPUJOBS, "raycluster-notebook")
    waits = await jobs.phase("Queued", "raycluster-notebook", reason="Resources")
    assert waits.message.startswith("Need 2 GPUs, only 1 available"), waits.message
    assert not of_cluster(await guests.pods())
    await jobs.delete("first")
    await runs(guests, jobs, kind="RayCluster")
