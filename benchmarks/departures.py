"""Say what is left for a policy where pods also leave: the average allocation without one border after the other.

The same arrivals, which request exactly the cluster's GPUs on average. First on one pool of GPU capacity, then of GPU
capacity, CPU and memory, then on one node with all devices of the cluster, where devices have borders and nodes have
none. What is missing to 100 % there is the random number of pods that are there at a time; the rest, down to a
policy's own figure, is what the borders between nodes cost it.

    python benchmarks/departures.py --traces FOLDER [--seeds 42,43] [--policies pack,fgd,bestfit] [--json FILE]
"""

import argparse
import heapq
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import simulator

from dovetail.simulator.arrivals import Visit
from dovetail.simulator.curve import average_allocation
from dovetail.simulator.experiment import Outcome, kind
from dovetail.simulator.parallel import Scene, run_one
from dovetail.simulator.trace import Node


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--traces", type=Path, required=True, help="folder with a trace")
    options.add_argument("--seeds", default="42", help="which arrivals of the folder (default: %(default)s)")
    options.add_argument("--policies", default="pack,fgd,bestfit", help="of the simulator (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/departures.json"), help="where it is written too")
    args = options.parse_args()
    found: dict[str, Any] = {}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for seed, whole in simulator.read(args.traces, name="default", seeds=list(map(int, args.seeds.split(",")))).items():
        scene = simulator.leaving(whole)
        outcomes = {
            "one pool of GPUs": pooled(scene, counts=(True, False, False)),
            "one pool of GPUs, CPU and memory": pooled(scene, counts=(True, True, True)),
            "one node": run_one("bestfit", scene=replace(scene, nodes=[one_node(scene.nodes)])),
        }
        for name in args.policies.split(","):
            outcomes[name] = run_one(name, scene=scene)
        for name, outcome in outcomes.items():
            row = {"average": average_allocation(outcome), "refused": dict(sorted(outcome.refused.items()))}
            found.setdefault(str(seed), {})[name] = row
            print(f"seed {seed}, {name}: {row['average']:.2f} %, refused {row['refused']}", flush=True)
        args.json.write_text(json.dumps(found, indent=2) + "\n")


def one_node(nodes: Sequence[Node]) -> Node:
    """All nodes as one."""
    return Node(
        name="all",
        cpu_milli=sum(node.cpu_milli for node in nodes),
        memory_mib=sum(node.memory_mib for node in nodes),
        gpus=sum(node.gpus for node in nodes),
        model="any",
    )


def pooled(scene: Scene, *, counts: tuple[bool, bool, bool]) -> Outcome:
    """The outcome if a pod starts as long as the sums allow it; `counts` says which: GPU milli, CPU, memory."""
    whole = one_node(scene.nodes)
    capacity_milli = whole.gpus * 1000
    free = np.array([capacity_milli, whole.cpu_milli, whole.memory_mib]) * np.array(counts)
    staying: list[tuple[float, int]] = []
    refused: Counter[str] = Counter()
    allocated = np.zeros(len(scene.visits))
    for number, visit in enumerate(scene.visits):
        while staying and staying[0][0] <= visit.at:
            free += _amounts(scene.visits[heapq.heappop(staying)[1]]) * np.array(counts)
        amounts = _amounts(visit) * np.array(counts)
        if (amounts <= free).all():
            free -= amounts
            heapq.heappush(staying, (visit.leaves_at, number))
        else:
            refused[kind(visit.shape)] += 1
        allocated[number] = capacity_milli - free[0]
    return Outcome(
        policy="pooled",
        capacity_milli=capacity_milli,
        at=np.array([visit.at for visit in scene.visits]),
        arrived_milli=np.cumsum([visit.shape.gpu_milli for visit in scene.visits], dtype=np.float64),
        allocated_milli=allocated,
        fragments_milli={},
        refused=dict(refused),
        placed=len(scene.visits) - refused.total(),
        seconds=0.0,
    )


def _amounts(visit: Visit) -> np.typing.NDArray[np.int64]:
    """What a pod takes: GPU milli, CPU milli, memory in MiB, [3]."""
    return np.array([visit.shape.gpu_milli, visit.shape.cpu_milli, visit.shape.memory_mib])


if __name__ == "__main__":
    main()
