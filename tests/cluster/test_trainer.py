"""The real controllers of Kubeflow Trainer and LeaderWorkerSet with their webhooks: TrainJobs and replicas are queued.

Their own sandbox, `dovetail sandbox up --with jobset --with trainer --with lws`; a build takes minutes, so that this
belongs to `make e2e`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.resources import GPUJOBS, Resource
from dovetail.jobs.guests.replicas import LEADERWORKERSETS
from dovetail.jobs.guests.trainjob import TrainJobs
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import NODES, OVERRIDES
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs
from tests.cluster.kinds import JOBSETS
from tests.cluster.sandboxes import sandbox_with
from tests.cluster.test_guest_kinds import hold_and_release
from tests.cluster.test_guests import Guests
from tests.cluster.test_neighbours import condition_of
from tests.cluster.test_pod_groups import all_run, is_gated
from tests.core.jobs.guests.examples import EXPECTED, FOLDER

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TRAINJOBS: Final = TrainJobs.resource
RUNTIMES: Final = Resource(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="clustertrainingruntimes",
    kind="ClusterTrainingRuntime",
    namespaced=False,
)
NODE: Final = EXPECTED["TrainJob"]
Body = dict[str, Any]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """A sandbox with JobSet, Kubeflow Trainer and LeaderWorkerSet."""
    with sandbox_with(nodes_file=NODES, overrides=OVERRIDES, with_=["jobset", "trainer", "lws"]) as found:
        yield found


@pytest.fixture
async def guests(client: Client, jobs: Jobs) -> AsyncIterator[Guests]:
    made = Guests(client, namespace=jobs.namespace)
    name, body = "torch-distributed", runtime()
    await client.apply(RUNTIMES, name=name, body=body, as_type=Body, field_manager="test", force=True)
    yield made
    await made.clear()


def runtime() -> Body:
    """The Trainer's own runtime for PyTorch, whose pods run until they are ended, and are not tried again."""
    node = {
        "metadata": {"annotations": {names.RUN_SECONDS: str(FOR_EVER)}},
        "spec": {"containers": [{"name": "node", "image": "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime"}]},
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"backoffLimit": 0, "template": node}
    part = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": job}}
    return {
        "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [part]}}},
    }


def example(name: str) -> Body:
    found: Body = yaml.safe_load(FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    return found


async def test_the_example_is_held_runs_on_its_plan_returns_and_ends(guests: Guests, jobs: Jobs) -> None:
    made = await guests.make(example("trainjob"), resource=TRAINJOBS)
    assert made["spec"]["suspend"] is True
    await jobs.there(GPUJOBS, NODE.name)
    running = await jobs.until(NODE.name, lambda status: status.workers_ready == NODE.workers)
    assert len({(device.node, device.uuid) for device in running.devices}) == NODE.workers
    pods = await guests.until_pods(lambda pods: all_run(pods, count=NODE.pods))
    allocated = [found for pod in pods if (found := allocation_in(pod.metadata.annotations)) is not None]
    assert [found.job for found in allocated] == [NODE.name] * NODE.workers
    await hold_and_release(guests, jobs, expected=NODE)
    for pod in await guests.until_pods(lambda pods: all_run(pods, count=NODE.pods)):
        await jobs.end_pod(pod, exit_code=0)
    await jobs.phase("Succeeded", NODE.name)
    await condition_of(jobs, TRAINJOBS, "finetune", lambda true: "Complete" in true)


async def test_a_training_node_starts_in_its_plan_after_the_initializer(
    guests: Guests, jobs: Jobs, client: Client
) -> None:
    body = runtime()
    body["metadata"]["name"] = "torch-with-data"
    (node,) = body["spec"]["template"]["spec"]["replicatedJobs"]
    pod = {
        "metadata": {"annotations": {names.RUN_SECONDS: str(FOR_EVER)}},
        "spec": {"containers": [{"name": "dataset-initializer", "image": "busybox:1.37"}]},
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
    job = {"backoffLimit": 0, "template": pod}
    data = {"name": "dataset-initializer", "template": {"metadata": {"labels": labels}, "spec": job}}
    after = node | {"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}
    body["spec"]["template"]["spec"]["replicatedJobs"] = [data, after]
    name = body["metadata"]["name"]
    await client.apply(RUNTIMES, name=name, body=body, as_type=Body, field_manager="test", force=True)
    written = example("trainjob")
    written["spec"] |= {"runtimeRef": {"name": name}, "initializer": {"dataset": {"storageUri": "hf://team/data"}}}
    await guests.make(written, resource=TRAINJOBS)
    (first,) = await guests.until_pods(lambda pods: all_run(pods, count=1))
    assert allocation_in(first.metadata.annotations) is None, "an initializer has no GPU"
    planned = (await jobs.phase("Starting", NODE.name)).placement
    # Longer than the extender keeps room for a pod that it has only filtered.
    await asyncio.sleep(15)
    await jobs.end_pod(first, exit_code=0)
    running = await jobs.until(NODE.name, lambda status: status.workers_ready == NODE.workers)
    assert running.placement == planned


async def test_it_waits_with_a_reason_is_counted_and_starts_whole(guests: Guests, jobs: Jobs) -> None:
    await jobs.submit("first", workers=13)
    await jobs.phase("Running", "first")
    await guests.make(example("trainjob"), resource=TRAINJOBS)
    await jobs.there(GPUJOBS, NODE.name)
    waits = await jobs.phase("Queued", NODE.name, reason="Resources")
    assert waits.message.startswith("Need 2 GPUs, only 1 available"), waits.message
    event = await guests.announced("Resources", kind="TrainJob", name="finetune")
    assert event.message.startswith("Need 2 GPUs, only 1 available"), event.message
    assert not [pod for pod in await guests.pods() if names.RUN in pod.metadata.labels]
    await jobs.delete("first")
    await jobs.until(NODE.name, lambda status: status.workers_ready == NODE.workers)


async def test_a_node_that_fails_fails_the_trainjob_and_its_record(guests: Guests, jobs: Jobs) -> None:
    await guests.make(example("trainjob"), resource=TRAINJOBS)
    await jobs.there(GPUJOBS, NODE.name)
    await jobs.until(NODE.name, lambda status: status.workers_ready == NODE.workers)
    failing, *_ = await guests.until_pods(lambda pods: all_run(pods, count=NODE.pods))
    await jobs.end_pod(failing, exit_code=3)
    failed = await jobs.phase("Failed", NODE.name)
    assert "exit code 3" in failed.message
    await condition_of(jobs, TRAINJOBS, "finetune", lambda true: "Failed" in true)


async def test_a_change_of_the_jobset_by_the_trainer_keeps_the_gates(guests: Guests, jobs: Jobs) -> None:
    """The Trainer applies the JobSet each time that it looks at a held TrainJob."""
    await jobs.submit("first", workers=13)
    await jobs.phase("Running", "first")
    await guests.make(example("trainjob"), resource=TRAINJOBS)
    await jobs.there(GPUJOBS, NODE.name)
    await jobs.phase("Queued", NODE.name, reason="Resources")
    patch = {"metadata": {"annotations": {names.PRIORITY: "20"}}}
    await guests.client.patch(TRAINJOBS, name="finetune", patch=patch, as_type=Body, namespace=guests.namespace)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if (await jobs.spec(NODE.name))["priority"] == 20:
                break
            await asyncio.sleep(0.1)
    made = await guests.client.get(JOBSETS, name="finetune", as_type=Body, namespace=guests.namespace)
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["spec"]["schedulingGates"] == [{"name": names.QUEUE_GATE}]
    assert template["metadata"]["annotations"][names.REQUEST] == "1"


async def test_each_replica_of_a_leaderworkerset_waits_and_starts_as_a_group(guests: Guests, jobs: Jobs) -> None:
    body = example("leaderworkerset")
    for template in body["spec"]["leaderWorkerTemplate"].values():
        if isinstance(template, dict) and "spec" in template:
            annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
            annotations[names.RUN_SECONDS] = str(FOR_EVER)
    made = await guests.make(body, resource=LEADERWORKERSETS.resource)
    size = made["spec"]["leaderWorkerTemplate"]["size"]
    for index in range(made["spec"]["replicas"]):
        record = f"podgroup-{made['metadata']['name']}-{index}"
        await jobs.there(GPUJOBS, record)
        await jobs.phase("Running", record)
    pods = await guests.until_pods(lambda pods: all_run(pods, count=made["spec"]["replicas"] * size))
    assert not any(is_gated(pod) for pod in pods)
