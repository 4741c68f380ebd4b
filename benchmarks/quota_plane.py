"""Reclaim on a control plane: seconds from the creation of an owner's job until all its workers run.

Nodes and kubelets are simulated (KWOK); operator, kube-scheduler with the extender, Job controller and agent are real.
Borrowers' jobs of 1 to 8 GPUs fill the cluster before each reclaim. The notice is 0 s. KAI-Scheduler publishes 13.9 s
for one GPU and 85 s for 4,000.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import plane
import queue_plane
import turns
from queue_admission import followed
from queue_running import until_reported
from queue_workload import DEVICES

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, GPUQUOTAS, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

KAI_SECONDS = {"one GPU": 13.9, "4,000 GPUs": 85.0}
_SIZES = (1, 2, 4, 8)


def gang(text: str) -> tuple[int, int]:
    """The GPUs of a gang and of each of its workers, from a text such as 1000x8. Raises `ArgumentTypeError`."""
    gpus, _, each = text.partition("x")
    if gpus.isdecimal() and each.isdecimal() and int(each) and int(gpus) % int(each) == 0:
        return int(gpus), int(each)
    raise argparse.ArgumentTypeError(f"{text}: write GPUS x GPUs of a worker, such as 1000x8")


def on_plane(*, nodes: int, singles: int, gangs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Seconds of `singles` reclaims of one GPU, and of each of the gangs."""
    with queue_plane.sandbox(
        nodes=queue_plane.gpu_nodes(nodes), overrides=["config.preemption.reclaim_grace=0"], without=["gateway"]
    ) as made:
        return asyncio.run(_reclaims(made, nodes=nodes, singles=singles, gangs=gangs))


@dataclass(slots=True)
class _Seen:
    """What the watches have shown: jobs that run whole, when each began to start and to run, and when each pod ran."""

    running: set[str] = field(default_factory=set)
    since: dict[str, float] = field(default_factory=dict)
    starting: dict[str, float] = field(default_factory=dict)
    pods: dict[str, float] = field(default_factory=dict)
    # The moment of the last event of each kind, such as the last pod of a borrower that went, since they were cleared.
    last: dict[str, float] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def job(self, event: EventType, job: GPUJob) -> None:
        name = job.metadata.name
        if job.status.phase == "Starting":
            self.starting.setdefault(name, time.monotonic())
        if job.status.preemption is not None and job.status.preemption.at is not None:
            self.last["announced"] = time.monotonic()
        if job.status.phase == "Preempted" and job.status.preemption is not None and name not in self.left:
            self.left.add(name)
            self.last["suspended"] = time.monotonic()
        runs = event != "DELETED" and job.status.phase == "Running" and job.status.reason != "GangWaiting"
        if runs:
            self.since.setdefault(name, time.monotonic())
            self.running.add(name)
        else:
            self.running.discard(name)
        self.changed.set()

    def pod(self, event: EventType, pod: Pod) -> None:
        """Note when the last pod of each job began to run."""
        name, now = pod.metadata.name, time.monotonic()
        if name.startswith("borrows-"):
            if event == "DELETED":
                self.last["pods gone"] = now
            return
        if event == "ADDED":
            self.last["pods created"] = now
        if event != "DELETED" and pod.spec.node_name and name not in self.bound:
            self.bound.add(name)
            self.last["pods bound"] = now
        if event != "DELETED" and pod.status.phase == "Running" and name not in self.pods:
            self.pods[name] = now

    async def until(self, running: Sequence[str], *, seconds: float) -> None:
        """Wait until all these jobs run."""
        wanted = set(running)
        async with asyncio.timeout(seconds):
            while not wanted <= self.running:
                self.changed.clear()
                await self.changed.wait()


async def _reclaims(made: Cluster, *, nodes: int, singles: int, gangs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    seen = _Seen()
    async with plane.client_of(made) as client:
        await until_reported(client, nodes)
        spec = {"projects": ["owner"], "guaranteed": {"gpus": nodes * DEVICES}}
        body = {"apiVersion": GPUQUOTAS.api_version, "kind": GPUQUOTAS.kind, "metadata": {"name": "owner"}}
        await client.create(GPUQUOTAS, body=body | {"spec": spec}, as_type=dict[str, Any])
        async with followed(client, GPUJOBS, GPUJob, seen.job), followed(client, PODS, Pod, seen.pod):
            borrowers = _borrowers(nodes)
            began = time.monotonic()
            await queue_plane.submit(client, borrowers)
            bench = _Bench(client, made=made, seen=seen, borrowers=[each["metadata"]["name"] for each in borrowers])
            await bench.full()
            filled = round(time.monotonic() - began, 1)
            one = [await bench.timed(f"single-{at}", gpus=1, each=1) for at in range(singles)]
            several = [await bench.timed(f"gang-{at}", gpus=gpus, each=each) for at, (gpus, each) in enumerate(gangs)]
    found: dict[str, Any] = {
        "nodes": nodes,
        "borrowers_jobs": len(borrowers),
        "filled_seconds": filled,
        "one_gpu": one,
        "gangs": several,
        "kai_seconds": KAI_SECONDS,
    }
    if one:
        found["one_gpu_median_seconds"] = statistics.median(each["seconds"] for each in one)
    return found


def _borrowers(nodes: int) -> list[dict[str, Any]]:
    """Jobs of 1 to 8 GPUs that fill the nodes, the largest first so that none is left without a node."""
    rng, left, sizes = Random(7), nodes * DEVICES, list[int]()
    while left:
        sizes.append(min(rng.choice(_SIZES), 1 << (left.bit_length() - 1)))
        left -= sizes[-1]
    return [queue_plane.job(f"borrows-{at:05d}", gpu=size) for at, size in enumerate(sorted(sizes, reverse=True))]


class _Bench:
    """Times one reclaim after another on a cluster that borrowers fill again in between."""

    def __init__(self, client: Client, *, made: Cluster, seen: _Seen, borrowers: Sequence[str]) -> None:
        self._client = client
        self._made = made
        self._seen = seen
        self._borrowers = borrowers

    async def full(self) -> None:
        """Wait until all borrowers' jobs run."""
        await self._seen.until(self._borrowers, seconds=600)

    async def timed(self, name: str, *, gpus: int, each: int) -> dict[str, Any]:
        """Reclaim once: seconds from the creation until the job runs, with the machine's load, and the jobs ended."""
        body = queue_plane.job(name, gpu=each, workers=gpus // each)
        body["metadata"]["labels"] = {names.LABEL_PROJECT: "owner"}
        # What follows from filling the cluster, such as its jobs' events, is no part of a reclaim.
        await turns.until_calm(self._made)
        self._seen.last.clear()
        self._seen.left.clear()
        with turns.measured(self._made) as used:
            began = time.monotonic()
            await self._client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=queue_plane.NAMESPACE)
            await self._seen.until([name], seconds=600)
        found = {
            "gpus": gpus,
            "workers": gpus // each,
            "seconds": round(self._seen.since[name] - began, 2),
            "starting_seconds": round(self._seen.starting.get(name, self._seen.since[name]) - began, 2),
            "pods_seconds": round(self._last_pod(name) - began, 2),
            "ended_jobs": len(set(self._borrowers) - self._seen.running),
            "load": os.getloadavg()[0],
            "last_seconds": {what: round(at - began, 1) for what, at in self._seen.last.items()},
            "cpu_seconds": {name: round(cpu, 1) for name, cpu in used.cpu_seconds.items()},
            "writes": used.writes,
            "runs": used.runs,
        }
        print(f"{name}: {found}", flush=True)
        await self._client.delete(GPUJOBS, name=name, namespace=queue_plane.NAMESPACE)
        await self.full()
        return found

    def _last_pod(self, name: str) -> float:
        return max(at for pod, at in self._seen.pods.items() if pod.startswith(f"{name}-"))
