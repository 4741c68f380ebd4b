"""A real HPA scales a Deployment with shares by prometheus-adapter, with the examples of docs/autoscaling.md."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.autoscaling import Trace, applied, metrics_apis, on_the_serving_node, serving_node
from tests.cluster.jobs import Jobs
from tests.cluster.prometheus import scraping

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
async def metrics(client: Client, namespace: str, sandbox: Cluster, tmp_path: Path) -> AsyncIterator[None]:
    """Prometheus and prometheus-adapter are at work."""
    async with (
        scraping(sandbox, folder=tmp_path) as prometheus,
        metrics_apis(client, cluster=sandbox, namespace=namespace, prometheus=prometheus, folder=tmp_path),
    ):
        yield


async def test_shares_follow_the_utilization_of_their_pods(client: Client, namespace: str, metrics: None) -> None:
    trace = Trace(client=client, namespace=namespace, name="serve")
    async with (
        serving_node(client, namespace=namespace) as demand,
        applied(client, "utilization.yaml", namespace=namespace, changes=on_the_serving_node),
    ):
        await demand(0.2)
        await trace.until_bound(1)
        # Two halves of a GPU would compute all the time, three compute two thirds of it.
        await demand(1.0)
        await trace.until_bound(3)
        await trace.stays(3, seconds=45)
        await demand(0.1)
        await trace.until_bound(1)
    seen = [moment.seen for moment in trace.moments if moment.seen is not None]
    assert max(seen) == pytest.approx(1.0, abs=0.01)
    assert min(seen) < 0.3


async def test_runners_follow_the_queue_of_their_namespace(
    client: Client, namespace: str, jobs: Jobs, metrics: None
) -> None:
    trace = Trace(client=client, namespace=namespace, name="overflow")
    await jobs.submit("holds", gpu="2(A100)")
    await jobs.phase("Running", "holds")
    async with applied(client, "queue.yaml", namespace=namespace):
        await trace.until_bound(1)
        for number in range(5):
            await jobs.submit(f"waits-{number}", gpu="2(A100)")
        # Five jobs wait, two for each runner.
        await trace.until_bound(3)
        for number in range(5):
            await jobs.delete(f"waits-{number}")
        await trace.until_bound(1)
