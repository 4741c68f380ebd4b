"""The cluster of one client, and what of it all tools share."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.transport import brief_session
from dovetail.query.jobs import selection
from dovetail_cli.agents.previews import Previews
from dovetail_cli.cluster.connection import Cluster, leave_out, load
from dovetail_cli.jobs import details


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options that name the cluster."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The connection of one client, and the previews that it was shown."""

    cluster: Cluster
    previews: Previews = field(default_factory=lambda: Previews(clock=time.monotonic))

    def at(self, namespace: str | None) -> Cluster:
        """The cluster with this namespace, or the session's own for None."""
        return self.cluster if namespace is None else replace(self.cluster, namespace=namespace)


@asynccontextmanager
async def opened(where: Where) -> AsyncIterator[Session]:
    """A session with the cluster that the options name.

    Raises `NoConnectionError` and `KubeconfigError`.
    """
    connection = load(where.kubeconfig, context=where.context)
    async with Client(
        connection, user_agent="dovetail-mcp", on_unreadable=leave_out, make_session=brief_session
    ) as client:
        yield Session(cluster=Cluster(client=client, namespace=where.namespace or connection.namespace))


async def find(cluster: Cluster, *, job: str) -> GPUJob:
    """A job by its number or name. Raises `MissingError` and `InvalidQueryError`."""
    return await details.find(cluster, wanted=selection.parse_one(job, field="job"))
