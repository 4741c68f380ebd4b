"""Measure one-GPU jobs from creation to all running; then the delay of a job's reason on the full cluster.

Everything is real except the nodes' kubelets: operator, kube-scheduler with the extender, Job controller and agent;
KWOK simulates the pods. KAI publishes 398 s for 4,000 jobs, and 249 s until a job that cannot run has its reason.

    python benchmarks/queue_running.py [--jobs 4000] [--nodes 500] [--asks 20] [--json FILE]
"""

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

import plane
import queue_plane
from counts import count
from queue_admission import followed
from queue_plane import NAMESPACE

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, GPUNODES, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

KAI_SECONDS = 398.0
KAI_TOLD_SECONDS = 249.0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=count, default=4_000, help="jobs of one GPU each (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=500, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--asks", type=int, default=20, help="jobs that find it full (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/queue_running.json"), help="where it is written too")
    args = options.parse_args()
    # The same programs as before there was a gateway: it is measured by benchmarks/gateway.py.
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(args.nodes), without=["gateway"]) as made:
        found = asyncio.run(measure(made, args))
    queue_plane.report(found, path=args.json)


async def measure(made: Cluster, args: argparse.Namespace) -> dict[str, Any]:
    async with plane.client_of(made) as client:
        await until_reported(client, args.nodes)
        running = await all_running(client, jobs=args.jobs)
        reasons = await until_told(client, asks=args.asks)
    now, peak = plane.memory_mib(made.pid("operator"))
    return {
        "nodes": args.nodes,
        **running,
        **reasons,
        "operator_memory_mib": now,
        "operator_peak_memory_mib": peak,
    }


async def until_reported(client: Client, nodes: int) -> None:
    """Wait until the agent has reported all devices."""
    while True:
        began = time.monotonic()
        found, _ = await client.list(GPUNODES, as_type=GPUNode)
        if sum(bool(node.status.devices) for node in found) >= nodes:
            return
        # A list of thousands of GPUNodes keeps the API server busy that the agent needs to report.
        await asyncio.sleep(max(1.0, 4 * (time.monotonic() - began)))


async def all_running(client: Client, *, jobs: int) -> dict[str, Any]:
    """The time from the first creation until all pods run, and until all GPUJobs are Running."""
    pods: dict[str, float] = {}
    ran: dict[str, float] = {}

    def pod(_event: EventType, seen: Pod) -> None:
        if seen.status.phase == "Running":
            pods.setdefault(seen.metadata.name, time.monotonic())

    def job(_event: EventType, seen: GPUJob) -> None:
        if seen.status.phase == "Running":
            ran.setdefault(seen.metadata.name, time.monotonic())

    async with followed(client, PODS, Pod, pod), followed(client, GPUJOBS, GPUJob, job):
        began = time.monotonic()
        await queue_plane.submit(client, [queue_plane.job(f"job-{at:05d}") for at in range(jobs)])
        submitted = time.monotonic() - began
        while len(pods) < jobs or len(ran) < jobs:
            await asyncio.sleep(1.0)
            seconds = time.monotonic() - began
            print(
                f"\r{len(pods)} pods and {len(ran)} GPUJobs of {jobs} run after {seconds:.0f} s",
                end="",
                flush=True,
            )
        print()
    return {
        "jobs": jobs,
        "submitted_seconds": round(submitted, 1),
        "pods_running_seconds": round(max(pods.values()) - began, 1),
        "jobs_running_seconds": round(max(ran.values()) - began, 1),
        "kai_seconds": KAI_SECONDS,
    }


async def until_told(client: Client, *, asks: int) -> dict[str, Any]:
    """One after another: the time from the submission of a job that does not fit until its status says so."""
    waits = []
    for at in range(asks):
        name, explained = f"asks-{at:03d}", asyncio.Event()

        def job(_event: EventType, seen: GPUJob, *, name: str = name, explained: asyncio.Event = explained) -> None:
            if seen.metadata.name == name and seen.status.reason not in {"", "Evaluating"}:
                explained.set()

        async with followed(client, GPUJOBS, GPUJob, job):
            began = time.monotonic()
            body = queue_plane.job(name)
            await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)
            await explained.wait()
            waits.append(time.monotonic() - began)
    spread = {key: round(value, 3) for key, value in queue_plane.percentiles(waits).items()}
    return {"told_seconds": spread, "kai_told_seconds": KAI_TOLD_SECONDS}


if __name__ == "__main__":
    main()
