"""Whether the scheduler runs, as far as the API server can tell: its Lease, or else its Deployment."""

from datetime import datetime
from typing import Final

from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import LEASES, Resource
from dovetail.formats.timestamps import moment
from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.cluster.connection import RELEASE_NAMESPACE, Cluster
from dovetail_cli.ui.times import brief, utc_now

NAME: Final = "dovetail-scheduler"
_DEPLOYMENTS: Final = Resource(group="apps", plural="deployments", kind="Deployment")
_UNKNOWN: Final = "Unknown (neither its Lease nor its Deployment can be seen)"


class LeaseSpec(Described, frozen=True, kw_only=True):
    """Who leads, and when that was last said."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class Lease(Described, frozen=True, kw_only=True):
    """A Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class DeploymentStatus(Described, frozen=True, kw_only=True):
    """How many of its pods are ready to serve."""

    available_replicas: int = 0


class Deployment(Described, frozen=True, kw_only=True):
    """A Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    status: DeploymentStatus = DeploymentStatus()


async def scheduler_status(cluster: Cluster) -> str:
    """`Running`, `Not running` with what shows it, or `Unknown`."""
    try:
        lease = await cluster.client.get(LEASES, NAME, as_type=Lease, namespace=RELEASE_NAMESPACE)
        return judge_lease(lease, now=utc_now())
    except (NotFound, Forbidden):
        pass
    try:
        deployment = await cluster.client.get(_DEPLOYMENTS, NAME, as_type=Deployment, namespace=RELEASE_NAMESPACE)
        return judge_deployment(deployment)
    except (NotFound, Forbidden):
        return _UNKNOWN


def judge_lease(lease: Lease, *, now: datetime) -> str:
    """A holder that has renewed within the lease's time is running."""
    renewed = lease.spec.renew_time
    if not lease.spec.holder_identity or not renewed:
        return "Not running (nobody holds its Lease)"
    age = (now - moment(renewed)).total_seconds()
    if age <= (lease.spec.lease_duration_seconds or 0):
        return "Running"
    return f"Not running (last seen {brief(age)} ago)"


def judge_deployment(deployment: Deployment) -> str:
    """At least one replica that is available is running."""
    return "Running" if deployment.status.available_replicas > 0 else "Not running (no replica is available)"
