"""Sketch: what a GPUJob would cost the cluster if its pod were created directly, without a batch Job in between.

A script plays the operator, so this is no measurement of one: it creates the GPUJob, writes a plan to its status,
creates the batch Job or the pod, and writes the status again once the pod runs. API server, etcd, controllers,
kube-scheduler, extender and webhook are real. Turns of both ways follow each other in a new order each round; a round
is rejected if a program ended in it by itself. See docs/decisions/0034-direct-pods.md.

    python benchmarks/direct_pods.py [--nodes 8] [--jobs 60] [--rounds 4] [--rate 5] [--json FILE]
"""

import argparse
import asyncio
import random
import statistics
from pathlib import Path
from typing import Any, Final

import job_cost
import plane
import queue_plane
import turns
from counts import count
from queue_admission import followed
from queue_plane import NAMESPACE
from queue_running import until_reported

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, JOBS, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

BATCH_JOB: Final = "batch-job"
DIRECT: Final = "direct"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=8, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--jobs", type=count, default=60, help="jobs of a turn (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=4, help="turns of each way (default: %(default)s)")
    options.add_argument("--rate", type=float, default=5.0, help="jobs a second (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/direct_pods.json"), help="where it is written too")
    args = options.parse_args()
    # The policies let no one but the operator make what belongs to a GPUJob.
    overrides, without = ["policies.enabled=false"], ["operator", "gateway"]
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(args.nodes), without=without, overrides=overrides) as made:
        found = asyncio.run(measure(made, args))
    queue_plane.report(found, path=args.json)


async def measure(made: Cluster, args: argparse.Namespace) -> dict[str, Any]:
    """CPU milliseconds and writes for each job, by way and round, and the median ratio of the two ways."""
    taken: list[dict[str, Any]] = []
    rejected, order, rng = 0, [BATCH_JOB, DIRECT], random.Random(1)
    async with plane.client_of(made) as client:
        await until_reported(client, args.nodes)
        idle = await turns.idle(made, seconds=job_cost.IDLE_SECONDS)
        for at in range(args.rounds):
            rng.shuffle(order)
            found = {
                way: await turn(made, client, way=way, prefix=f"{way}-{at}", args=args, idle=idle) for way in order
            }
            if any(each["restarted"] for each in found.values()):
                rejected += 1
            else:
                taken.append(found)
    if 2 * len(taken) < args.rounds:
        raise SystemExit(f"{rejected} of {args.rounds} rounds are rejected: programs ended in them by themselves")
    ratios = [each[DIRECT]["cpu_ms"]["all"] / each[BATCH_JOB]["cpu_ms"]["all"] for each in taken]
    return {"jobs": args.jobs, "rejected": rejected, "direct_to_batch_job": statistics.median(ratios), "turns": taken}


async def turn(
    made: Cluster, client: Client, *, way: str, prefix: str, args: argparse.Namespace, idle: dict[str, float]
) -> dict[str, Any]:
    """Start so many jobs in one way, and wait until all of their pods run and their statuses say so."""
    waiting: dict[str, dict[str, Any]] = {}
    writes: set[asyncio.Task[None]] = set()

    def pod(event: EventType, seen: Pod) -> None:
        job = seen.metadata.labels.get("job", "")
        if event != "DELETED" and seen.status.phase == "Running" and job in waiting:
            writes.add(
                asyncio.ensure_future(_status(client, waiting.pop(job), phase="Running", node=seen.spec.node_name))
            )

    async with followed(client, PODS, Pod, pod):
        with turns.measured(made) as used:
            for at in range(args.jobs):
                await _start(client, name=f"{prefix}-{at:03d}", way=way, waiting=waiting)
                await asyncio.sleep(1 / args.rate)
            async with asyncio.timeout(300):
                while waiting:  # noqa: ASYNC110 - a watch empties it
                    await asyncio.sleep(0.1)
            await asyncio.gather(*writes)
            await asyncio.sleep(job_cost.SETTLING_SECONDS)
    await job_cost.clear(client)
    return job_cost.summary(used, count=args.jobs, idle=idle)


async def _start(client: Client, *, name: str, way: str, waiting: dict[str, dict[str, Any]]) -> None:
    """Create the GPUJob, its plan, and the object that runs it."""
    gpujob = await client.create(GPUJOBS, body=queue_plane.job(name), as_type=dict[str, Any], namespace=NAMESPACE)
    waiting[name] = await _status(client, gpujob, phase="Queued", node="")
    owner = {
        "apiVersion": names.API_VERSION, "kind": "GPUJob", "name": name, "uid": gpujob["metadata"]["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    template = job_cost.bare(name, args=argparse.Namespace(workers=1, nodes=1))["spec"]["template"]
    template["metadata"]["labels"] = {"job": name}
    if way == BATCH_JOB:
        spec = {
            "completions": 1,
            "parallelism": 1,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": template,
        }
        body = {"metadata": {"name": f"{name}-run", "labels": {"job": name}, "ownerReferences": [owner]}, "spec": spec}
        await client.create(JOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)
    else:
        # The name says job, attempt and worker: a second create of the same worker gets a conflict.
        metadata = {**template["metadata"], "name": f"{name}-1-0", "ownerReferences": [owner]}
        await client.create(
            PODS, body={"metadata": metadata, "spec": template["spec"]}, as_type=dict[str, Any], namespace=NAMESPACE
        )


async def _status(client: Client, gpujob: dict[str, Any], *, phase: str, node: str) -> dict[str, Any]:
    """Write a whole status, as the operator does."""
    status = {"phase": phase, "number": 1, "nodes": [node] if node else [], "message": "a sentence of some length"}
    body = {**gpujob, "status": status}
    name = gpujob["metadata"]["name"]
    return await client.update(
        GPUJOBS, name=name, body=body, as_type=dict[str, Any], namespace=NAMESPACE, subresource="status"
    )


if __name__ == "__main__":
    main()
