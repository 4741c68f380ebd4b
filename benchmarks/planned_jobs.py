"""Compare GPUJobs through the queue with plain pods on the same arrivals: allocation in percent, which no load changes.

The folder has a trace of the openb family, as for `simulator.py`. Jobs are planned by the queue's own code under each
term and get their devices by the extender's; pods are placed by the simulator's policies. Variants of the trace: only
shares, four times the pods with several GPUs, a third of the GPU pods tied to a model, and pods that leave.

    python benchmarks/planned_jobs.py --traces FOLDER [--seed 42] [--only default,shares] [--json FILE]
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import simulator

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.arrivals import filling, sample
from dovetail.simulator.curve import average_allocation, report
from dovetail.simulator.parallel import Scene, run_one
from dovetail.simulator.trace import columns_of

# The simulator's policy for each term, which learns its mix too: `pack` is `ph` with the prices of a live cluster.
PLAIN = {"ph": "pack", "fgd": "fgd-online", "bestfit": "bestfit"}
MORE_OFTEN = 4


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--traces", type=Path, required=True, help="folder with a trace")
    options.add_argument("--seed", type=int, default=42, help="which arrivals of the folder (default: %(default)s)")
    options.add_argument("--only", default=",".join(VARIANTS), help="variants (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/planned_jobs.json"), help="where it is written too")
    args = options.parse_args()
    base = simulator.read(args.traces, name="default", seeds=[args.seed])[args.seed]
    found: dict[str, Any] = {}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    print("| trace, at 100 / 130 % arrived | term | plain pods | GPUJobs |\n|---|---|---|---|")
    for name in args.only.split(","):
        scene = VARIANTS[name](base)
        for term, plain in PLAIN.items():
            pods, jobs = measured(plain, scene=scene), measured(term, scene=replace(scene, jobs=True))
            found.setdefault(name, {})[term] = {"pods": pods, "jobs": jobs}
            print(f"| {name} | {term} | {pods['shown']} | {jobs['shown']} |", flush=True)
            args.json.write_text(json.dumps(found, indent=2) + "\n")


def measured(policy: str, *, scene: Scene) -> dict[str, Any]:
    """The allocation under a policy; for pods that leave, its average over time."""
    outcome = run_one(policy, scene=scene)
    found = report(outcome, departures=scene.departures)
    if scene.departures:
        return found | {"shown": f"{average_allocation(outcome):.2f}, {outcome.failed} failed"}
    return found | {"shown": f"{found['allocation']['100']:.2f} / {found['allocation']['130']:.2f}"}


def shares(scene: Scene) -> Scene:
    """Only pods that request a share, or no GPU."""
    return _drawn(scene, weight=lambda shape: float(not shape.gpus or shape.is_share))


def several(scene: Scene) -> Scene:
    """Pods with several GPUs come more often."""
    return _drawn(scene, weight=lambda shape: MORE_OFTEN if shape.gpus > 1 else 1.0)


def _drawn(scene: Scene, *, weight: Callable[[Shape], float]) -> Scene:
    """Arrivals drawn from the trace's pods by weight, until they request 130 % of the GPUs."""
    random = np.random.default_rng(scene.seed)
    weights = np.array([weight(shape) for shape in scene.pods])
    chosen = random.choice(len(scene.pods), size=4 * len(scene.pods), p=weights / weights.sum())
    pods = [scene.pods[at] for at in chosen.tolist()]
    capacity_milli = columns_of(scene.nodes).capacity_milli
    drawn = sample(pods, capacity_milli=capacity_milli, percent=130, random=random)
    return replace(scene, pods=pods, visits=filling(drawn))


VARIANTS: dict[str, Callable[[Scene], Scene]] = {
    "default": lambda scene: scene,
    "shares": shares,
    "several": several,
    "tied": simulator.tied_to_models,
    "departures": simulator.leaving,
}


if __name__ == "__main__":
    main()
