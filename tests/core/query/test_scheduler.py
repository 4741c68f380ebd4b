"""Whether the scheduler runs."""

from datetime import timedelta

import pytest

from dovetail.api.builtin import Deployment, DeploymentStatus, Lease, LeaseSpec
from dovetail.query.scheduler import judge_deployment, judge_lease
from tests.cli.builders import NOW


def lease(*, renewed_seconds_ago: float | None, holder: str | None = "x") -> Lease:
    renewed = None if renewed_seconds_ago is None else NOW - timedelta(seconds=renewed_seconds_ago)
    return Lease(
        spec=LeaseSpec(
            holder_identity=holder,
            renew_time=None if renewed is None else renewed.isoformat(),
            lease_duration_seconds=15,
        )
    )


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (lease(renewed_seconds_ago=3), "Running"),
        (lease(renewed_seconds_ago=15), "Running"),
        (lease(renewed_seconds_ago=16), "Not running (last seen 16s ago)"),
        (
            Lease(spec=LeaseSpec(holder_identity="x", renew_time=(NOW - timedelta(seconds=3)).isoformat())),
            "Not running (last seen 3s ago)",
        ),
        (lease(renewed_seconds_ago=300), "Not running (last seen 5m ago)"),
        (lease(renewed_seconds_ago=3, holder=None), "Not running (its Lease has no holder)"),
        (lease(renewed_seconds_ago=None), "Not running (its Lease has no holder)"),
    ],
)
def test_a_scheduler_runs_while_its_lease_is_renewed(seen: Lease, status: str) -> None:
    assert judge_lease(seen, now=NOW) == status


@pytest.mark.parametrize(("replicas", "status"), [(1, "Running"), (0, "Not running (no replica is available)")])
def test_a_deployment_runs_with_one_replica_that_is_available(replicas: int, status: str) -> None:
    deployment = Deployment(status=DeploymentStatus(available_replicas=replicas))
    assert judge_deployment(deployment) == status
