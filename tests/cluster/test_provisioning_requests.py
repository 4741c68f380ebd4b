"""A pool whose nodes are requested by ProvisioningRequests, against the real CRD and with a small autoscaler."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import yaml

from dovetail.kube.client import Client
from tests.cluster import cluster_autoscaler
from tests.cluster.cluster_autoscaler import ClusterAutoscaler
from tests.cluster.configuration import config_of, set_config
from tests.cluster.jobs import Jobs
from tests.cluster.test_growing_declared import LABELS, MODEL, POOL, SHAPE, Autoscaler, name_of_node

pytestmark = pytest.mark.cluster

CLASS: Final = "check-capacity.autoscaling.x-k8s.io"


@pytest.fixture
async def nodes(client: Client, jobs: Jobs) -> AsyncIterator[Autoscaler]:
    """The pool uses ProvisioningRequests while a test runs, and its nodes are gone afterwards."""
    await cluster_autoscaler.install(client)
    before = await config_of(client)
    shape = {**SHAPE, "provisioning": "ProvisioningRequest", "class_name": CLASS}
    await set_config(client, yaml.safe_dump(yaml.safe_load(before) | {"growing": {"pools": {POOL: shape}}}))
    nodes = Autoscaler(client)
    yield nodes
    await jobs.clear()
    await set_config(client, before)
    await nodes.remove_nodes()


@pytest.fixture
def autoscaler(client: Client, jobs: Jobs) -> ClusterAutoscaler:
    return ClusterAutoscaler(client, namespace=jobs.namespace)


async def test_a_gang_asks_for_all_its_nodes_at_once_follows_the_answers_and_runs(
    jobs: Jobs, nodes: Autoscaler, autoscaler: ClusterAutoscaler
) -> None:
    await jobs.submit(gpu=f"2({MODEL})", workers=2)
    await jobs.phase("Queued", reason="Provisioning")
    (request,) = await autoscaler.requests(count=1)
    (pods,) = request["spec"]["podSets"]
    assert (request["spec"]["provisioningClassName"], pods["count"]) == (CLASS, 2)
    template = await autoscaler.template_of(request)
    assert template["spec"]["nodeSelector"].items() >= LABELS.items()
    await autoscaler.answer(request, Accepted="")
    await jobs.until("x", lambda status: status.message.endswith(", accepted by the cluster autoscaler"))
    await autoscaler.answer(request, Accepted="", Provisioned="")
    await jobs.until("x", lambda status: status.message.endswith(", provisioned by the cluster autoscaler"))
    pods_of_nodes: list[dict[str, Any]] = [{**template, "metadata": {"uid": f"new-{index}"}} for index in range(2)]
    for pod in pods_of_nodes:
        await nodes.add_node(pod)
    status = await jobs.until("x", lambda status: status.workers_ready == 2)
    assert {device.node for device in status.devices} == {name_of_node(pod) for pod in pods_of_nodes}
    assert status.provisioning is None
    await autoscaler.requests(count=0)
    await autoscaler.no_templates()


@pytest.mark.usefixtures("nodes")
async def test_a_request_that_the_autoscaler_refuses_is_given_up_with_its_reason(
    jobs: Jobs, autoscaler: ClusterAutoscaler
) -> None:
    await jobs.submit(gpu=f"2({MODEL})")
    (request,) = await autoscaler.requests(count=1)
    await autoscaler.answer(request, Accepted="", Failed="no quota for L4 in zone a")
    status = await jobs.until("x", lambda s: s.provisioning is not None and s.provisioning.retry_time is not None)
    assert (status.phase, status.reason) == ("Queued", "Provisioning")
    assert ": Failed (Test): no quota for L4 in zone a; requests again at " in status.message
    await autoscaler.requests(count=0)
