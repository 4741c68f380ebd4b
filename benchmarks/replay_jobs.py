"""Compare GPUJobs on a sandbox with GPUJobs in the simulator, on the same arrivals: allocation in percent.

A part of the trace's nodes is simulated on a real API server with the operator, kube-scheduler and the extender. The
pods with GPUs arrive as GPUJobs, in order, and stay; one that does not start is deleted, as the simulator passes it
over. Pods without GPUs are plain pods, which the extender places.

    python benchmarks/replay_jobs.py --traces FOLDER [--term ph] [--variant default] [--limit-nodes 200] [--seed 42]
        [--percent 130] [--json FILE]
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plane
import planned_jobs
import queue_plane
import replays
import simulator

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, PODS, Resource
from dovetail.fragmentation.pod_shapes import Shape
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import Reflector
from dovetail.simulator.parallel import Scene, run_one
from dovetail.simulator.planned_jobs import device_mib
from dovetail_sandbox.cluster import Cluster

# Jobs under way at a time until the first one is refused. After that one at a time: a waiting job reserves room.
IN_FLIGHT = 8
# Not an answer yet: the queue has not decided.
PASSING = ("", "Evaluating")
FILLING = [name for name in planned_jobs.VARIANTS if name != "departures"]


def main() -> None:
    options = replays.options(__doc__ or "", name="replay_jobs", limit_nodes=200, generates=False)
    options.add_argument("--term", choices=planned_jobs.PLAIN, default="ph", help="fragmentation_policy (default: ph)")
    options.add_argument("--variant", choices=FILLING, default="default", help="of the trace (default: %(default)s)")
    args = options.parse_args()
    whole = simulator.read(args.traces, name="default", seeds=[args.seed])[args.seed]
    scene = replays.part_of(
        planned_jobs.VARIANTS[args.variant](whole), nodes=args.limit_nodes, percent=args.percent, seed=args.seed
    )
    simulated = run_one(args.term, scene=replace(scene, jobs=True))
    started = time.monotonic()
    nodes = "".join(
        f"- {{name: n{at:04d}, count: 1, model: {node.model}, devices: {node.gpus}, "
        f"memory_mib: {device_mib(node.model)}, cpu: {node.cpu_milli // 1000}, memory: {node.memory_mib}Mi}}\n"
        for at, node in enumerate(scene.nodes)
    )
    with queue_plane.sandbox(nodes=nodes, overrides=[f"config.fragmentation_policy={args.term}"]) as made:
        real = replays.outcome_of(asyncio.run(replay(made, scene)), scene=scene, policy=args.term)
    took = time.monotonic() - started
    print(
        f"{args.variant}, {args.term}: {len(scene.nodes)} nodes, {len(scene.visits)} arrivals, real part {took:.0f} s"
    )
    replays.report(simulated, real=real, called="sandbox", path=args.json, more={"nodes": len(scene.nodes)})


async def replay(made: Cluster, scene: Scene) -> np.typing.NDArray[np.bool_]:
    """Which arrivals the operator, kube-scheduler and the extender place."""
    async with plane.client_of(made) as client:
        return await Arrivals(client, shapes=[visit.shape for visit in scene.visits]).run()


class Arrivals:
    """Submits one after the other and notes which were placed."""

    def __init__(self, client: Client, *, shapes: Sequence[Shape]) -> None:
        self._client = client
        self._shapes = shapes
        self._placed = np.zeros(len(shapes), dtype=np.bool_)
        self._decided: set[int] = set()
        self._refused: list[int] = []
        self._changed = asyncio.Event()

    async def run(self) -> np.typing.NDArray[np.bool_]:
        """Which were placed when they arrived."""
        namespace = queue_plane.NAMESPACE
        jobs: Reflector[Any] = Reflector(
            self._client, resource=GPUJOBS, as_type=GPUJob, namespace=namespace, on_event=self._on_job
        )
        pods: Reflector[Any] = Reflector(
            self._client, resource=PODS, as_type=Pod, namespace=namespace, on_event=self._on_pod
        )
        tasks = [asyncio.create_task(each.run()) for each in (jobs, pods)]
        for each in (jobs, pods):
            await each.synced.wait()
        for at, shape in enumerate(self._shapes):
            await self._until(lambda at=at: at - len(self._decided) < (1 if self._refused else IN_FLIGHT))
            resource, body = (GPUJOBS, _job(at, shape)) if shape.gpus else (PODS, _pod(at, shape))
            await self._client.create(resource, body=body, as_type=dict[str, Any], namespace=namespace)
            await self._delete_refused()
            if at % 50 == 0:
                print(f"{at} of {len(self._shapes)} arrived, {int(self._placed.sum())} placed", file=sys.stderr)
        await self._until(lambda: len(self._decided) == len(self._shapes))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self._placed

    async def _until(self, holds: Any) -> None:
        while not holds():
            self._changed.clear()
            await self._delete_refused()
            if not holds():
                await self._changed.wait()

    async def _delete_refused(self) -> None:
        """Delete what did not start, and wait until it is gone: it waits in the queue no longer."""
        for at in self._refused:
            if at >= 0:
                await self._gone(at)
        self._refused = [-1] if self._refused else []

    async def _gone(self, at: int) -> None:
        resource: Resource = GPUJOBS if self._shapes[at].gpus else PODS
        try:
            while True:
                await self._client.delete(resource, name=f"a-{at}", namespace=queue_plane.NAMESPACE)
                await asyncio.sleep(0.05)
                await self._client.get(
                    resource, name=f"a-{at}", as_type=dict[str, Any], namespace=queue_plane.NAMESPACE
                )
        except NotFound:
            return

    def _on_job(self, event: str, job: GPUJob) -> None:
        if event != "DELETED" and job.status.placement is not None:
            self._decide(job.metadata.name, placed=True)
        elif event != "DELETED" and job.status.phase == "Queued" and job.status.reason not in PASSING:
            self._decide(job.metadata.name, placed=False)

    def _on_pod(self, event: str, pod: Pod) -> None:
        refused = any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions)
        if event != "DELETED" and (pod.spec.node_name or refused):
            self._decide(pod.metadata.name, placed=bool(pod.spec.node_name))

    def _decide(self, name: str, *, placed: bool) -> None:
        number = name.removeprefix("a-")
        # The pods of jobs have longer names.
        if not number.isdigit() or int(number) in self._decided:
            return
        self._decided.add(int(number))
        self._placed[int(number)] = placed
        if not placed:
            self._refused.append(int(number))
        self._changed.set()


def _text(shape: Shape) -> str:
    models = f"({'|'.join(shape.models)})" if shape.models else ""
    return (f"{shape.share_milli / 1000:g}" if shape.is_share else f"{shape.gpus}") + models


def _job(at: int, shape: Shape) -> dict[str, Any]:
    body = queue_plane.job(f"a-{at}", policy="Pack")
    body["spec"]["gpu"] = _text(shape)
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    return body


def _pod(at: int, shape: Shape) -> dict[str, Any]:
    body = plane.pod(
        f"a-{at}", gpu="", milli=0, cpu=f"{shape.cpu_milli}m", memory=f"{shape.memory_mib}Mi", policy="Pack"
    )
    # By an amount of 0 the extender places a pod without devices, as in the simulator.
    body["spec"]["containers"][0]["resources"]["limits"][names.GPU_MILLI] = "0"
    return body


if __name__ == "__main__":
    main()
