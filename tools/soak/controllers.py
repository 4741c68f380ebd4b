"""The controllers of other projects that a soak's guests need: from their charts, or from their Go modules."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster import ray_dashboard
from tests.cluster.projects import KUBERAY, MPI_OPERATOR, at_work, installed
from tools.soak.guest_kinds import RUNTIME, RUNTIMES, Body, runtime

# Those with a chart, which the sandbox runs.
NEIGHBOURS: Final = ("jobset", "trainer", "lws")


@asynccontextmanager
async def running(client: Client, *, sandbox: Cluster, namespace: str, folder: Path) -> AsyncIterator[None]:
    """KubeRay and the MPI operator are at work in a namespace, and the Trainer has a runtime.

    No Ray runs on simulated nodes: a stand-in of its dashboard says that each program has succeeded.
    """
    await client.apply(RUNTIMES, name=RUNTIME, body=runtime(), as_type=Body, field_manager="soak", force=True)
    metrics, health = free_ports(count=2)
    of_ray = (
        f"--watch-namespace={namespace}",
        "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
    )
    of_mpi = (f"--namespace={namespace}", f"--lock-namespace={namespace}", "--kube-api-qps=50")
    working = partial(at_work, client=client, cluster=sandbox, namespace=namespace, folder=folder)
    async with ray_dashboard.serving() as ray, installed(client, projects=(KUBERAY, MPI_OPERATOR)):
        ray.status = "SUCCEEDED"
        by_proxy = {"HTTP_PROXY": ray.url, "http_proxy": ray.url, "NO_PROXY": "", "no_proxy": ""}
        async with (
            working(KUBERAY, arguments=of_ray, environment=by_proxy),
            working(MPI_OPERATOR, arguments=of_mpi, environment={}),
        ):
            yield
