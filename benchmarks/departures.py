"""Say what is left for a policy where pods also leave: the average allocation with one kind of border after the other.

The same arrivals, which request exactly the cluster's GPUs on average: on one pool of GPU capacity, on devices without
nodes (a share takes the fullest device where it fits), on nodes that have enough CPU and memory for all, and on the
nodes as they are. What is missing to 100 % on the pool is the varying number of pods that are there at a time.

    python benchmarks/departures.py --traces FOLDER [--seed 42] [--policies pack,fgd] [--json FILE]
"""

import argparse
import heapq
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import simulator

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.curve import average_allocation
from dovetail.simulator.experiment import Outcome, kind
from dovetail.simulator.parallel import Scene, run_one

# Which devices a pod has, and how much of each, in milli.
Taken = tuple[tuple[int, ...], int]
# More than the pods of a node can request.
AMPLE = 1 << 40


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--traces", type=Path, required=True, help="folder with a trace")
    options.add_argument("--seed", type=int, default=42, help="which arrivals of the folder (default: %(default)s)")
    options.add_argument("--policies", default="pack,fgd", help="of the simulator (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/departures.json"), help="where it is written too")
    args = options.parse_args()
    scene = simulator.leaving(simulator.read(args.traces, name="default", seeds=[args.seed])[args.seed])
    ample = replace(scene, nodes=[replace(node, cpu_milli=AMPLE, memory_mib=AMPLE) for node in scene.nodes])
    runs: dict[str, Callable[[], Outcome]] = {
        "one pool of GPUs": lambda: placed_on(scene, pool=Pool(gpus_of(scene))),
        "devices without nodes": lambda: placed_on(scene, pool=Devices(gpus_of(scene))),
    }
    for name in args.policies.split(","):
        runs[f"{name}, enough CPU and memory"] = partial(run_one, name, scene=ample)
        runs[name] = partial(run_one, name, scene=scene)
    found: dict[str, Any] = {}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        outcome = run()
        found[name] = {"average": average_allocation(outcome), "refused": dict(sorted(outcome.refused.items()))}
        print(f"{name}: {found[name]['average']:.2f} %, refused {found[name]['refused']}", flush=True)
        args.json.write_text(json.dumps(found, indent=2) + "\n")


class Pool:
    """GPU capacity without borders."""

    def __init__(self, gpus: int) -> None:
        self._free_milli = 1000 * gpus

    def take(self, shape: Shape) -> Taken | None:
        """Place a pod; None if it does not fit."""
        if shape.gpu_milli > self._free_milli:
            return None
        self._free_milli -= shape.gpu_milli
        return (), shape.gpu_milli

    def release(self, taken: Taken) -> None:
        """Give back what a pod had."""
        self._free_milli += taken[1]


class Devices:
    """Devices of one large machine with enough CPU and memory."""

    def __init__(self, gpus: int) -> None:
        self._free_milli = np.full(gpus, 1000)

    def take(self, shape: Shape) -> Taken | None:
        """Place a pod: a share on the fullest device where it fits, whole devices on idle ones; None if none fits."""
        fits = self._free_milli >= shape.share_milli
        if fits.sum() < shape.gpus:
            return None
        fullest = np.argsort(np.where(fits, self._free_milli, AMPLE), kind="stable")[: shape.gpus]
        self._free_milli[fullest] -= shape.share_milli
        return tuple(fullest.tolist()), shape.share_milli

    def release(self, taken: Taken) -> None:
        """Give back what a pod had."""
        self._free_milli[list(taken[0])] += taken[1]


def placed_on(scene: Scene, *, pool: Pool | Devices) -> Outcome:
    """The outcome of the arrivals on capacity without nodes."""
    staying: list[tuple[float, int, Taken]] = []
    refused: Counter[str] = Counter()
    allocated, held_milli = np.zeros(len(scene.visits)), 0
    for number, visit in enumerate(scene.visits):
        while staying and staying[0][0] <= visit.at:
            _, left, taken = heapq.heappop(staying)
            pool.release(taken)
            held_milli -= scene.visits[left].shape.gpu_milli
        found = pool.take(visit.shape)
        if found is None:
            refused[kind(visit.shape)] += 1
        else:
            held_milli += visit.shape.gpu_milli
            heapq.heappush(staying, (visit.leaves_at, number, found))
        allocated[number] = held_milli
    return Outcome(
        policy=type(pool).__name__,
        capacity_milli=1000 * gpus_of(scene),
        at=np.array([visit.at for visit in scene.visits]),
        arrived_milli=np.cumsum([visit.shape.gpu_milli for visit in scene.visits], dtype=np.float64),
        allocated_milli=allocated,
        fragments_milli={},
        refused=dict(refused),
        placed=len(scene.visits) - refused.total(),
        seconds=0.0,
    )


def gpus_of(scene: Scene) -> int:
    """The number of the cluster's GPUs."""
    return sum(node.gpus for node in scene.nodes)


if __name__ == "__main__":
    main()
