"""The operator of dask-kubernetes with its own CRDs, and the DaskCluster of docs/integrations/dask.md.

The simulated pods run neither Dask's scheduler nor its workers.
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail.api.builtin import Pod
from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster import clients, projects
from tests.cluster.clients import Program
from tests.cluster.jobs import Jobs
from tests.cluster.test_pod_groups import all_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CLUSTERS: Final = Resource(group="kubernetes.dask.org", version="v1", plural="daskclusters", kind="DaskCluster")
CLUSTER: Final[dict[str, Any]] = yaml.safe_load(clients.recipe("dask", language="yaml"))
_CRDS: Final = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"


@pytest.fixture
async def operator(sandbox: Cluster, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Program]:
    """The operator at work in the namespace of the test."""
    (health,) = free_ports(count=1)
    kopf = await clients.program_of("dask", name="kopf")
    (packages,) = Path(kopf).parents[1].glob("lib/python*/site-packages")
    crds = [yaml.safe_load(path.read_text()) for path in sorted((packages / _CRDS).glob("*.yaml"))]
    options = (f"--namespace={namespace}", f"--liveness=http://127.0.0.1:{health}/healthz")
    command = (kopf, "run", "-m", "dask_kubernetes.operator.controller", *options)
    async with (
        projects.served(client, crds=crds),
        clients.running(*command, folder=tmp_path, sandbox=sandbox) as program,
    ):
        yield program
        # The operator is needed for the end of its objects.
        found, _ = await client.list(CLUSTERS, as_type=dict[str, Any], namespace=namespace)
        for each in found:
            await client.delete(CLUSTERS, name=each["metadata"]["name"], namespace=namespace)
        await clients.until_pods(client, namespace=namespace, holds=lambda pods: not pods)


def parts(pods: list[Pod], *, component: str) -> list[Pod]:
    """The pods of a part of the DaskCluster; pods of the GPUJob may still be there."""
    return [pod for pod in pods if pod.metadata.labels.get("dask.org/component") == component]


workers, schedulers = partial(parts, component="worker"), partial(parts, component="scheduler")


def workers_run(pods: list[Pod], *, count: int) -> bool:
    return all_run(workers(pods), count=count)


@pytest.mark.usefixtures("operator")
async def test_workers_wait_with_a_reason_run_and_go_with_their_cluster(client: Client, jobs: Jobs) -> None:
    await jobs.submit("first", workers=14)
    await jobs.phase("Running", "first")
    await client.create(CLUSTERS, body=CLUSTER, as_type=dict[str, Any], namespace=jobs.namespace)
    pods = await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: len(workers(pods)) == 2)
    for worker in workers(pods):
        await clients.announced(client, pod=worker, text="Need 1 GPU, only 0 available")
    await jobs.delete("first")
    pods = await clients.until_pods(client, namespace=jobs.namespace, holds=partial(workers_run, count=2))
    allocations = [allocation_in(pod.metadata.annotations) for pod in workers(pods)]
    assert all(each is not None and len(each.devices) == 1 for each in allocations)
    (scheduler,) = schedulers(pods)
    assert allocation_in(scheduler.metadata.annotations) is None
    await client.delete(CLUSTERS, name="features", namespace=jobs.namespace)
    await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: not pods)
    await clients.until_nothing_is_held(client, namespace=jobs.namespace)
