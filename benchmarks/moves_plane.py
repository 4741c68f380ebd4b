"""KAI-Scheduler's consolidation test on a control plane: seconds until jobs run for which no node has room.

Nodes and kubelets are simulated (KWOK); operator, kube-scheduler with the extender, Job controller and agent are real.
On a fifth of the nodes, three jobs of two GPUs run; gangs hold six or seven GPUs of each of the others. So one or two
GPUs of every node are free, and the jobs that come next need eight. The operator moves jobs on need. KAI-Scheduler
publishes 456 s for 41 jobs on 500 nodes.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plane
import queue_plane
from queue_admission import followed
from queue_running import until_reported
from queue_workload import DEVICES

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

KAI_SECONDS = 456.0
# Of so many nodes, one has small jobs.
_PART = 5
_SMALL = 2
_GANG_GPUS = (6, 7)
_GANG_WORKERS = 50
_CONFIG = {
    "moves.mode": "Apply",
    "moves.default": "Restart",
    "moves.after": "0",
    "moves.per_hour": "1000",
    "moves.rest": "0",
    "preemption.grace": "1",
    "preemption.min_run": "0",
}
PATIENCE_SECONDS = 900.0


def consolidated(*, nodes: int, jobs: int) -> dict[str, Any]:
    """Seconds until so many jobs of eight GPUs run, on a sandbox of its own."""
    overrides = [f"config.{key}={value}" for key, value in _CONFIG.items()]
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(nodes), overrides=overrides, without=["gateway"]) as made:
        return asyncio.run(_measured(made, nodes=nodes, jobs=jobs))


@dataclass(slots=True)
class Seen:
    """What the statuses have shown: who runs, who has moved, and when each plan was first and last under way."""

    running: dict[str, list[str]] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)
    plans: dict[str, float] = field(default_factory=dict)
    under_way: dict[str, set[str]] = field(default_factory=dict)
    most: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def job(self, event: EventType, job: GPUJob) -> None:
        name, move = job.metadata.name, job.status.move
        if event != "DELETED" and job.status.phase == "Running" and job.status.reason != "GangWaiting":
            self.running[name] = job.status.nodes
        else:
            self.running.pop(name, None)
        for movers in self.under_way.values():
            movers.discard(name)
        if event != "DELETED" and move is not None:
            self.moves[name] = move.count
            if move.by:
                self.plans.setdefault(move.by, time.monotonic())
                self.under_way.setdefault(move.by, set()).add(name)
        self.most = max(self.most, sum(bool(movers) for movers in self.under_way.values()))
        self.changed.set()

    async def until(self, holds: Callable[[Mapping[str, list[str]]], bool]) -> None:
        """Wait until this holds for the jobs that run."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(self.running):
                self.changed.clear()
                await self.changed.wait()


async def _measured(made: Cluster, *, nodes: int, jobs: int) -> dict[str, Any]:
    seen = Seen()
    async with plane.client_of(made) as client:
        await until_reported(client, nodes)
        async with followed(client, GPUJOBS, GPUJob, seen.job):
            stay = await fragment(client, seen=seen, nodes=nodes)
            wanted = [f"whole-{at:02d}" for at in range(jobs)]
            began = time.monotonic()
            await queue_plane.submit(client, [queue_plane.job(name, gpu=DEVICES) for name in wanted])
            await seen.until(lambda running: running.keys() >= set(wanted))
            started = time.monotonic()
            await seen.until(lambda running: running.keys() >= {*wanted, *stay})
    return {
        "nodes": nodes,
        "small_jobs": len(stay),
        "jobs": jobs,
        "first_plan_seconds": round(min(seen.plans.values()) - began, 1),
        "last_plan_seconds": round(max(seen.plans.values()) - began, 1),
        "running_seconds": round(started - began, 1),
        "all_running_seconds": round(time.monotonic() - began, 1),
        "moves": sum(seen.moves.values()),
        "most_plans_at_once": seen.most,
        "kai_seconds": KAI_SECONDS,
        "load": os.getloadavg()[0],
    }


async def fragment(client: Client, *, seen: Seen, nodes: int) -> list[str]:
    """Fill the nodes until each has one or two GPUs free. Returns the names of the small jobs."""
    whole = nodes // _PART
    small = [f"small-{at:04d}" for at in range(whole * DEVICES // _SMALL)]
    await queue_plane.submit(client, [queue_plane.job(name, gpu=_SMALL, policy="Pack") for name in small])
    await seen.until(lambda running: running.keys() >= set(small))
    gangs = list(_gangs(nodes - whole))
    await queue_plane.submit(client, gangs)
    names = {each["metadata"]["name"] for each in gangs}
    await seen.until(lambda running: running.keys() >= names)
    on: dict[str, str] = {}
    for name in small:
        on.setdefault(seen.running[name][0], name)
    for name in on.values():
        await client.delete(GPUJOBS, name=name, namespace=queue_plane.NAMESPACE)
    await seen.until(lambda running: not running.keys() & set(on.values()))
    return [name for name in small if name not in set(on.values())]


def _gangs(nodes: int) -> Sequence[dict[str, Any]]:
    """Gangs that leave one or two GPUs of so many nodes."""
    sizes = [min(_GANG_WORKERS, nodes - at) for at in range(0, nodes, _GANG_WORKERS)]
    return [
        queue_plane.job(f"gang-{at:03d}", gpu=_GANG_GPUS[at % 2], workers=size, moves="Never")
        for at, size in enumerate(sizes)
    ]
