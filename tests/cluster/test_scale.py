"""`kubectl scale` and a real HorizontalPodAutoscaler change the number of workers of an elastic job."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from dovetail_sandbox.cluster import Cluster
from tests.cluster.autoscaling import AUTOSCALERS, reached
from tests.cluster.jobs import Jobs, run

pytestmark = pytest.mark.cluster
_SCALE: Final = Resource(group="dovetail.dev", version="v1beta1", plural="gpujobs", kind="Scale")


async def scale(sandbox: Cluster, *, namespace: str, name: str, to: int) -> str:
    """What kubectl says."""
    words = ("--namespace", namespace, "scale", "gpujob", name, f"--replicas={to}")
    done = await run("kubectl", "--kubeconfig", str(sandbox.kubeconfig), *words)
    return done.stdout + done.stderr


async def test_kubectl_scales_an_elastic_job_down_and_up(
    sandbox: Cluster, client: Client, namespace: str, jobs: Jobs
) -> None:
    """The node with A100s has two of them."""
    await jobs.submit("elastic", gpu="1(A100)", workers=2, minWorkers=1)
    await jobs.until("elastic", lambda status: status.workers_ready == 2)
    assert "gpujob.dovetail.dev/elastic scaled" in await scale(sandbox, namespace=namespace, name="elastic", to=1)
    # Of the two that end, one may be ready for a moment longer, while the job waits for its next run.
    status = await jobs.until("elastic", lambda status: (status.phase, status.workers_ready) == ("Running", 1))
    assert (status.gpus, status.retries, status.elastic and status.elastic.workers) == (1, 0, 1)
    # Another job has what was given back, so more do not fit until it ends.
    await jobs.submit("other", gpu="1(A100)")
    await jobs.phase("Running", "other")
    await scale(sandbox, namespace=namespace, name="elastic", to=2)
    status = await jobs.until("elastic", lambda status: "more fit" in status.message)
    assert (status.phase, status.workers_ready) == ("Running", 1)
    await jobs.delete("other")
    await jobs.until("elastic", lambda status: status.workers_ready == 2)
    seen = await client.get(_SCALE, name="elastic", as_type=dict[str, Any], namespace=namespace, subresource="scale")
    assert (seen["spec"]["replicas"], seen["status"]["replicas"]) == (2, 2)
    assert seen["status"]["selector"] == "dovetail.dev/job=elastic"


async def test_only_an_elastic_job_is_scaled_and_not_below_its_minimum(
    sandbox: Cluster, namespace: str, jobs: Jobs
) -> None:
    await jobs.submit("fixed", gpu="1(A100)", workers=2)
    said = await scale(sandbox, namespace=namespace, name="fixed", to=1)
    assert "workers cannot be changed without minWorkers, and not in an array or a sweep: delete the job" in said
    await jobs.submit("elastic", gpu="1(A100)", workers=4, minWorkers=2)
    said = await scale(sandbox, namespace=namespace, name="elastic", to=1)
    assert "minWorkers must not be more than workers" in said
    with pytest.raises(StatusError, match="workers cannot be changed without minWorkers"):
        await jobs.change("fixed", workers=3)


@asynccontextmanager
async def autoscaler(client: Client, *, namespace: str, most: int) -> AsyncIterator[None]:
    """An HPA of the job `elastic`. It has no metric to read here: it keeps the number within its bounds."""
    spec = {
        "scaleTargetRef": {"apiVersion": "dovetail.dev/v1beta1", "kind": "GPUJob", "name": "elastic"},
        "minReplicas": 1,
        "maxReplicas": most,
        "metrics": [
            {
                "type": "External",
                "external": {"metric": {"name": "none"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            }
        ],
    }
    body = {"metadata": {"name": "elastic"}, "spec": spec}
    await client.create(AUTOSCALERS, body=body, as_type=dict[str, Any], namespace=namespace)
    try:
        yield
    finally:
        await client.delete(AUTOSCALERS, name="elastic", namespace=namespace)


async def test_an_autoscaler_reads_and_sets_the_scale_of_a_job(client: Client, namespace: str, jobs: Jobs) -> None:
    await jobs.submit("elastic", gpu="1(A100)", workers=2, minWorkers=1)
    await jobs.until("elastic", lambda status: status.workers_ready == 2)

    async def can_scale() -> bool:
        found = await client.get(AUTOSCALERS, name="elastic", as_type=dict[str, Any], namespace=namespace)
        conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
        able = conditions.get("AbleToScale", {})
        assert able.get("status") != "False", json.dumps(conditions)
        return bool(able.get("status") == "True") and found["status"]["currentReplicas"] == 2

    # Without metrics, the controller brings a number above its maximum down to that.
    async with autoscaler(client, namespace=namespace, most=1):
        await jobs.until("elastic", lambda status: (status.workers_ready, status.gpus) == (1, 1))
    async with autoscaler(client, namespace=namespace, most=3):
        await jobs.change("elastic", workers=2)
        await jobs.until("elastic", lambda status: status.workers_ready == 2)
        await reached(can_scale, seconds=60)
