"""Compare PACK through the real kube-scheduler with PACK in the simulator, on the same arrivals: allocation in percent.

The nodes of the trace are created on a real API server, and its pods arrive in order, each with the annotation that
requests PACK; they stay. A refused pod counts as refused at its arrival, as in the simulator. Pods without GPUs take
only CPU and memory. `--tied P` ties P percent of the GPU pods to one model, drawn by its number of GPUs.

    python benchmarks/replay_pack.py --traces FOLDER [--seed 42] [--limit-nodes N] [--tied 33] [--json FILE]
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import plane
import replays
import simulator
from plane import NodeShape

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.fragmentation.pod_shapes import Shape
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.simulator.parallel import Scene, run_all
from dovetail.simulator.planned_jobs import device_mib
from dovetail_sandbox.cluster import Cluster

IN_FLIGHT = 24


def main() -> None:
    options = replays.options(__doc__ or "", name="replay_pack", limit_nodes=None, generates=True)
    options.add_argument("--name", default="default", help="which pod list of the folder (default: %(default)s)")
    options.add_argument("--tied", type=float, default=0.0, help="percent of GPU pods tied to one model")
    args = options.parse_args()
    scene = _scene(args)
    [simulated] = run_all(["pack"], scene=scene, processes=1)
    started = time.monotonic()
    with plane.plane() as made:
        real = replays.outcome_of(asyncio.run(replay(made, scene)), scene=scene, policy="pack")
    took = time.monotonic() - started
    print(f"{len(scene.nodes)} nodes, {len(scene.visits)} arrivals, tied {args.tied:g} %, real part {took:.0f} s")
    more = {"nodes": len(scene.nodes), "tied": args.tied}
    replays.report(simulated, real=real, called="kube-scheduler", path=args.json, more=more)


def _scene(args: argparse.Namespace) -> Scene:
    scene = (
        simulator.read(args.traces, name=args.name, seeds=[args.seed])[args.seed]
        if args.traces
        else simulator.generated(seed=args.seed)
    )
    if args.limit_nodes:
        scene = replays.part_of(scene, nodes=args.limit_nodes, percent=args.percent, seed=args.seed)
    if args.tied:
        simulator.TIED_PERCENT = args.tied
        scene = simulator.tied_to_models(scene)
    return scene


async def replay(made: Cluster, scene: Scene) -> np.typing.NDArray[np.bool_]:
    """Which arrivals kube-scheduler and the extender place."""
    async with plane.client_of(made) as client:
        await plane.add_nodes(
            client,
            [
                NodeShape(
                    name=node.name,
                    cpu_milli=node.cpu_milli,
                    memory_mib=node.memory_mib,
                    devices=node.gpus,
                    model=node.model,
                    device_memory_mib=device_mib(node.model),
                )
                for node in scene.nodes
            ],
        )
        return await _arrive(client, [visit.shape for visit in scene.visits])


async def _arrive(client: Client, shapes: Sequence[Shape]) -> np.typing.NDArray[np.bool_]:
    """Which pods were placed when they arrived. A few are under way at a time, so that the order stays."""
    placed = np.zeros(len(shapes), dtype=np.bool_)
    decided: set[int] = set()
    gate = asyncio.Semaphore(IN_FLIGHT)

    def note(event: str, pod: Pod) -> None:
        at = int(pod.metadata.name.removeprefix("p-"))
        refused = any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions)
        if event != "DELETED" and at not in decided and (pod.spec.node_name or refused):
            decided.add(at)
            placed[at] = bool(pod.spec.node_name)
            gate.release()

    reflector: Reflector[Any] = Reflector(client, resource=PODS, as_type=Pod, namespace="default", on_event=note)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    for at, shape in enumerate(shapes):
        await gate.acquire()
        await client.create(PODS, body=_pod(at, shape), as_type=dict[str, Any], namespace="default")
        if sys.stderr.isatty() and at % 50 == 0:
            print(f"\r{at} of {len(shapes)} arrived, {int(placed.sum())} placed", end="", file=sys.stderr)
    while len(decided) < len(shapes):  # noqa: ASYNC110 - a watch fills it
        await asyncio.sleep(0.1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return placed


def _pod(at: int, shape: Shape) -> dict[str, Any]:
    models = f"({'|'.join(shape.models)})" if shape.models else ""
    amount = f"{shape.share_milli / 1000:g}" if shape.is_share else f"{shape.gpus}"
    pod = plane.pod(
        f"p-{at}",
        gpu=f"{amount}{models}",
        milli=shape.gpu_milli,
        cpu=f"{shape.cpu_milli}m",
        memory=f"{shape.memory_mib}Mi",
        policy="Pack",
    )
    if not shape.gpus:
        # By an amount of 0 a pod without devices is placed by the extender, as the simulator's policies place it.
        pod["spec"]["containers"][0]["resources"]["limits"][names.GPU_MILLI] = "0"
    return pod


if __name__ == "__main__":
    main()
