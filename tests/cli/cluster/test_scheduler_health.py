"""Whether the scheduler runs, from what a reader may see."""

from datetime import timedelta

import pytest

from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.scheduler_health import scheduler_status
from dovetail_cli.ui.times import utc_now
from tests.core.kube.api import Answer, Api, refusal

SYSTEM = "namespaces/dovetail-system"
LEASE = f"GET /apis/coordination.k8s.io/v1/{SYSTEM}/leases/dovetail-scheduler"
DEPLOYMENT = f"GET /apis/apps/v1/{SYSTEM}/deployments/dovetail-scheduler"


def lease(*, renewed_seconds_ago: float) -> Answer:
    renewed = utc_now() - timedelta(seconds=renewed_seconds_ago)
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%f}Z"}
    return Answer(body={"metadata": {}, "spec": spec})


async def test_who_holds_the_lease_runs_until_it_runs_out(api: Api, cluster: Cluster) -> None:
    api.answer(LEASE, lease(renewed_seconds_ago=0), lease(renewed_seconds_ago=600))
    assert await scheduler_status(cluster) == "Running"
    assert (await scheduler_status(cluster)).startswith("Not running (last seen 10m")
    assert not api.of(DEPLOYMENT)


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(body={"metadata": {}, "status": {"availableReplicas": 1}}), "Running"),
        (Answer(body={"metadata": {}, "status": {}}), "Not running (no replica is available)"),
        (refusal(403), "Unknown (neither its Lease nor its Deployment can be seen)"),
        (refusal(404), "Unknown (neither its Lease nor its Deployment can be seen)"),
    ],
)
async def test_where_no_lease_can_be_seen_the_deployment_says(
    status: int, answer: Answer, told: str, api: Api, cluster: Cluster
) -> None:
    api.answer(LEASE, refusal(status))
    api.answer(DEPLOYMENT, answer)
    assert await scheduler_status(cluster) == told
