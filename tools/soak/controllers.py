"""The controllers of other projects that a soak's guests need: from their charts, or from their Go modules."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.projects import ray_and_mpi
from tools.soak.guest_kinds import RUNTIME, RUNTIMES, Body, runtime

# Those with a chart, which the sandbox runs.
NEIGHBOURS: Final = ("jobset", "trainer", "lws")


@asynccontextmanager
async def running(client: Client, *, sandbox: Cluster, namespace: str, folder: Path) -> AsyncIterator[None]:
    """KubeRay and the MPI operator are at work in a namespace, and the Trainer has a runtime.

    No Ray runs on simulated nodes: a stand-in of its dashboard says that each program has succeeded.
    """
    await client.apply(RUNTIMES, name=RUNTIME, body=runtime(), as_type=Body, field_manager="soak", force=True)
    async with ray_and_mpi(client, cluster=sandbox, namespace=namespace, folder=folder) as ray:
        ray.status = "SUCCEEDED"
        yield
