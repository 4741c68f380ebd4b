"""Reads the scheduler's Lease, or its Deployment where there is no Lease."""

from typing import Final

from dovetail import names
from dovetail.api.builtin import Deployment, Lease
from dovetail.api.resources import LEASES, Resource
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.scheduler import judge_deployment, judge_lease
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui.times import utc_now

# Its Lease and its Deployment have one name.
NAME: Final = names.SCHEDULER_LEASE
_DEPLOYMENTS: Final = Resource(group="apps", plural="deployments", kind="Deployment")
_UNKNOWN: Final = "Unknown (neither its Lease nor its Deployment can be seen)"


async def scheduler_status(cluster: Cluster) -> str:
    """`Running`, `Not running` with the reason, or `Unknown`."""
    namespace = await release_namespace(cluster)
    try:
        lease = await cluster.client.get(LEASES, name=NAME, as_type=Lease, namespace=namespace)
        return judge_lease(lease, now=utc_now())
    except (NotFound, Forbidden):
        pass
    try:
        deployment = await cluster.client.get(_DEPLOYMENTS, name=NAME, as_type=Deployment, namespace=namespace)
        return judge_deployment(deployment)
    except (NotFound, Forbidden):
        return _UNKNOWN
