"""A control plane for measuring the queue: the operator of this checkout on a real API server, and how it is doing."""

import asyncio
import json
import os
import signal
import statistics
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plane

from dovetail import names
from dovetail.api.resources import GPUJOBS, NAMESPACES
from dovetail.kube.client import Client
from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster

NAMESPACE = "bench"


def gpu_nodes(count: int) -> str:
    """Simulated nodes of eight devices each, in the format of the sandbox."""
    return f"- {{name: gpu, count: {count}, model: V100, devices: 8, memory_mib: 32768, cpu: 96, memory: 768Gi}}\n"


def report(found: dict[str, Any], *, path: Path) -> None:
    """Write the results to a file and to the terminal."""
    text = json.dumps(found, indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    print(text)


@contextmanager
def sandbox(*, nodes: str, without: Sequence[str] = (), overrides: Sequence[str] = ()) -> Iterator[Cluster]:
    """A separate sandbox with the declared nodes; removed at the end."""
    name = f"bench-{uuid.uuid4().hex[:6]}"
    with tempfile.TemporaryDirectory() as folder:
        declared = Path(folder) / "nodes.yaml"
        declared.write_text(nodes, encoding="utf-8")
        qps = [f"scheduler.qps={plane.QPS}", f"scheduler.burst={2 * plane.QPS}"]
        made = cluster.get(name)
        try:
            bringup.up(
                name, report=progress.reporter(), nodes_file=declared, overrides=[*qps, *overrides], without=without
            )
            asyncio.run(_namespace(made))
            yield made
        finally:
            made.down()


async def _namespace(made: Cluster) -> None:
    async with plane.client_of(made) as client:
        await client.create(NAMESPACES, body={"metadata": {"name": NAMESPACE}}, as_type=dict[str, Any])


@contextmanager
def paused(made: Cluster, *components: str) -> Iterator[None]:
    """Pause these components while the context is open."""
    for component in components:
        os.kill(made.pid(component), signal.SIGSTOP)
    try:
        yield
    finally:
        for component in components:
            os.kill(made.pid(component), signal.SIGCONT)


def job(name: str, *, gpu: int = 1, run: float = 1e6, workers: int = 1, **spec: Any) -> dict[str, Any]:
    """A GPUJob as a user writes it, with a container that runs so long."""
    template = {
        "metadata": {"annotations": {names.RUN_SECONDS: f"{run:g}"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}],
        },
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"name": name},
        "spec": {"gpu": gpu, "workers": workers, "template": template, **spec},
    }


async def submit(client: Client, bodies: Sequence[dict[str, Any]], *, per_second: float | None = None) -> None:
    """Create GPUJobs, all at once or at that rate."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(numbered: tuple[int, dict[str, Any]]) -> None:
        at, body = numbered
        if per_second is not None:
            await asyncio.sleep(max(0.0, began + at / per_second - loop.time()))
        await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)

    await plane.each(enumerate(bodies), one, what="jobs")


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Median, p95, p99 and the largest."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"median": statistics.median(ordered), "p95": at(0.95), "p99": at(0.99), "max": ordered[-1]}
