"""Next to Kueue, which admits Jobs on nodes of a played device plugin: a replay with its quotas meets its starts."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from dovetail.api.builtin import Pod
from dovetail.api.resources import JOBS, PODS
from dovetail.kube.client import Client
from dovetail_cli.cluster.connection import Cluster as Connected
from dovetail_cli.observe.look import report
from dovetail_sandbox.cluster import Cluster
from tests.cluster.kueue import CLUSTERQUEUES, FLAVORS, LOCALQUEUES, QUEUE_NAME
from tests.cluster.sandboxes import sandbox_with
from tests.cluster.test_observing import GPU, NODE_SET, PRESET, Manifest, _until, pod_spec
from tests.cluster.test_observing import namespace as namespace  # noqa: PLC0414 - a fixture
from tests.cluster.test_observing import observer as observer  # noqa: PLC0414 - a fixture

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The sandbox of test_observing.py, with Kueue."""
    nodes = tmp_path_factory.mktemp("kueue") / "nodes.yaml"
    nodes.write_text(NODE_SET, encoding="utf-8")
    options: Manifest = {"values_file": PRESET, "overrides": ["agent.namespace="], "request_log": True}
    with sandbox_with(nodes_file=nodes, with_=["kueue"], **options) as found:
        yield found


@pytest.fixture
async def queues(client: Client, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """Two LocalQueues: one of 12 GPUs, and one of 8. The cluster has 32."""
    unlimited = {"nominalQuota": "1000"}
    flavor = {"metadata": {"name": namespace}, "spec": {}}
    await client.create(FLAVORS, body=flavor, as_type=Manifest)
    found = []
    for name, gpus in (("large", 12), ("small", 8)):
        covered = {GPU: {"nominalQuota": str(gpus)}, "cpu": unlimited, "memory": unlimited | {"nominalQuota": "1000Gi"}}
        resources = [{"name": resource, **quota} for resource, quota in covered.items()]
        spec = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceGroups": [
                {"coveredResources": list(covered), "flavors": [{"name": namespace, "resources": resources}]}
            ],
        }
        queue = f"{namespace}-{name}"
        await client.create(CLUSTERQUEUES, body={"metadata": {"name": queue}, "spec": spec}, as_type=Manifest)
        local = {"metadata": {"name": name}, "spec": {"clusterQueue": queue}}
        await client.create(LOCALQUEUES, body=local, as_type=Manifest, namespace=namespace)
        found.append(queue)
    yield found[0], found[1]
    for queue in found:
        await client.delete(CLUSTERQUEUES, name=queue)
    await client.delete(FLAVORS, name=namespace)


async def run_job(client: Client, name: str, *, namespace: str, queue: str, gpus: int, seconds: int) -> None:
    """A Job of one pod in Kueue's queue, which the sandbox ends after some seconds."""
    template = {
        "metadata": {"annotations": {"sandbox.dovetail.dev/run-seconds": str(seconds)}},
        "spec": pod_spec(gpus=gpus, cpu=1, restartPolicy="Never"),
    }
    body = {
        "metadata": {"name": name, "labels": {QUEUE_NAME: queue}},
        "spec": {"suspend": True, "template": template},
    }
    await client.create(JOBS, body=body, as_type=Manifest, namespace=namespace)


@pytest.mark.usefixtures("queues")
async def test_a_replay_meets_the_starts_of_jobs_that_wait_for_kueue(
    client: Client, observer: Connected, namespace: str
) -> None:
    draw = random.Random(19)
    for at in range(50):
        queue = draw.choice(["large", "small"])
        gpus = draw.choice([1, 2, 4, 8] if queue == "large" else [1, 2, 4])
        await run_job(client, f"j{at}", namespace=namespace, queue=queue, gpus=gpus, seconds=draw.randint(10, 30))
        await asyncio.sleep(draw.expovariate(1.0))

    async def have_ended() -> bool:
        pods = (await client.list(PODS, as_type=Pod, namespace=namespace)).items
        return len(pods) == 50 and all(pod.status.phase == "Succeeded" for pod in pods)

    await _until("all pods end", have_ended, seconds=400)
    found = await report(observer)
    items = [each for each in found.items if each.namespace == namespace]
    waits = [each for each in items if each.waited > found.within_seconds]
    assert len(items) == 50
    assert len(waits) >= 10, "without a queue there is nothing to meet"
    missed = [each for each in items if abs((each.replayed or 0) - each.waited) > found.within_seconds]
    assert found.reproduced >= 0.95, missed
    assert any("50 pods were admitted by Kueue" in note for note in found.notes)
