"""Compare PACK through the real kube-scheduler with PACK in the simulator, on the same arrivals: allocation in percent.

The nodes of the trace are created on a real API server, and its pods arrive in order, each with the annotation that
requests PACK; they stay. A refused pod counts as refused at its arrival, as in the simulator. Pods without GPUs take
only CPU and memory. `--tied P` ties P percent of the GPU pods to one model, drawn by its number of GPUs.

    python benchmarks/replay_pack.py --traces FOLDER [--seed 42] [--limit-nodes N] [--tied 33] [--json FILE]
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import plane
import simulator
from plane import NodeShape

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.fragmentation.pod_shapes import Shape
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.simulator.curve import LOADS, allocation_at
from dovetail.simulator.experiment import Outcome
from dovetail.simulator.parallel import Scene, run_all
from dovetail_sandbox.cluster import Cluster

IN_FLIGHT = 24
DEVICE_MEMORY_MIB = 16_384


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--traces", type=Path, help="folder with a trace; a generated one by default")
    options.add_argument("--name", default="default", help="which pod list of the folder (default: %(default)s)")
    options.add_argument("--seed", type=int, default=42, help="which arrivals of the folder (default: %(default)s)")
    options.add_argument("--limit-nodes", type=int, help="take a part of the nodes, and arrivals for that part")
    options.add_argument("--tied", type=float, default=0.0, help="percent of GPU pods tied to one model")
    options.add_argument("--json", type=Path, default=Path("out/replay_pack.json"), help="where it is written too")
    args = options.parse_args()
    scene = _scene(args)
    [simulated] = run_all(["pack"], scene=scene, processes=1)
    started = time.monotonic()
    with plane.plane() as made:
        real = asyncio.run(replay(made, scene))
    took = time.monotonic() - started
    print(f"{len(scene.nodes)} nodes, {len(scene.visits)} arrivals, tied {args.tied:g} %, real part {took:.0f} s")
    rows = {}
    for load in LOADS:
        both = allocation_at(simulated, percent=load), allocation_at(real, percent=load)
        if both[0] is not None and both[1] is not None:
            rows[load] = {"simulator": both[0], "kube-scheduler": both[1]}
            print(f"  {load:>3} % arrived: simulator {both[0]:6.2f}, kube-scheduler {both[1]:6.2f}")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"nodes": len(scene.nodes), "tied": args.tied, "allocation": rows}, indent=2))


def _scene(args: argparse.Namespace) -> Scene:
    scene = (
        simulator.read(args.traces, name=args.name, seeds=[args.seed])[args.seed]
        if args.traces
        else simulator.generated(seed=args.seed)
    )
    if args.limit_nodes:
        random = np.random.default_rng(args.seed)
        chosen = sorted(random.choice(len(scene.nodes), size=args.limit_nodes, replace=False).tolist())
        nodes = [scene.nodes[at] for at in chosen]
        wanted = 1.3 * sum(node.gpus for node in nodes) * 1000
        asked = np.cumsum([visit.shape.gpu_milli for visit in scene.visits])
        scene = replace(scene, nodes=nodes, visits=scene.visits[: int(np.searchsorted(asked, wanted)) + 1])
    if args.tied:
        simulator.TIED_PERCENT = args.tied
        scene = simulator.tied_to_models(scene)
    return scene


async def replay(made: Cluster, scene: Scene) -> Outcome:
    """The arrivals through kube-scheduler and the extender."""
    shapes = [visit.shape for visit in scene.visits]
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
                    device_memory_mib=DEVICE_MEMORY_MIB,
                )
                for node in scene.nodes
            ],
        )
        placed = await _arrive(client, shapes)
    milli = np.array([shape.gpu_milli for shape in shapes], dtype=np.float64)
    return Outcome(
        policy="pack",
        capacity_milli=sum(node.gpus for node in scene.nodes) * 1000,
        at=np.arange(len(shapes), dtype=np.float64),
        arrived_milli=np.cumsum(milli),
        allocated_milli=np.cumsum(milli * placed),
        fragments_milli={},
        refused={},
        placed=int(placed.sum()),
        seconds=0.0,
    )


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
