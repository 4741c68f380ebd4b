"""Compare GPUJobs through the queue with plain pods and with FGD on the same arrivals: allocation, in percent.

The queue's own code plans the jobs under each term, and the extender's chooses their devices; the simulator's policies
place pods; FGD is the published policy, which knows the mix. Without a folder, each seed draws cluster and pods from
published statistics; a folder has a trace of the openb family, as for `simulator.py`. The families vary them: pods
without GPUs come more often, nodes have less CPU, only shares come, pods with several GPUs come more often, pods are
tied to models, and pods leave. No load of the machine changes the results.

    python benchmarks/planned_jobs.py [--seeds 1 2 3 4 5] [--size 1.0] [--only cpu,tied] [--json FILE]
    python benchmarks/planned_jobs.py --traces FOLDER [--seeds 42] [--terms ph,fgd,bestfit]
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import published_statistics
import simulator

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.arrivals import filling, sample
from dovetail.simulator.curve import average_allocation, report
from dovetail.simulator.parallel import Scene, run_one
from dovetail.simulator.trace import columns_of

# The simulator's policy for each term, which learns its mix too: `pack` is `ph` with the prices of a live cluster.
PLAIN = {"ph": "pack", "fgd": "fgd-online", "bestfit": "bestfit"}
LOADS = ("100", "130")
MORE_OFTEN = 4
MANY_WITHOUT_GPUS = 3.5
SEVERAL_PART = 0.4
NAMED_PART = 0.33
# How far GPUJobs may be below pods, in points.
TOLERATED = 0.2


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--traces", type=Path, help="folder with a trace; drawn from statistics by default")
    options.add_argument("--seeds", type=int, nargs="*", help="which arrivals (default: 1 to 5, of a folder all)")
    options.add_argument("--size", type=float, default=1.0, help="of the drawn cluster (default: %(default)s)")
    options.add_argument("--only", default=",".join(VARIANTS), help="families (default: %(default)s)")
    options.add_argument("--terms", default="ph", help="of ph, fgd and bestfit (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/planned_jobs.json"), help="where it is written too")
    args = options.parse_args()
    args.json.parent.mkdir(parents=True, exist_ok=True)
    if args.traces:
        bases = simulator.read(args.traces, name="default", seeds=args.seeds)
    else:
        bases = {seed: published_statistics.scene(seed=seed, size=args.size) for seed in args.seeds or range(1, 6)}
    rows: list[dict[str, Any]] = []
    print("| family, at 100 / 130 % arrived | seed | term | plain pods | GPUJobs | FGD |\n|---|---|---|---|---|---|")
    for name in args.only.split(","):
        for seed, base in bases.items():
            scene = VARIANTS[name](base)
            fgd = measured("fgd", scene=scene)
            for term in args.terms.split(","):
                pods, jobs = measured(PLAIN[term], scene=scene), measured(term, scene=replace(scene, jobs=True))
                rows.append({"family": name, "seed": seed, "term": term, "pods": pods, "jobs": jobs, "fgd": fgd})
                print(f"| {name} | {seed} | {term} | {shown(pods)} | {shown(jobs)} | {shown(fgd)} |", flush=True)
                args.json.write_text(json.dumps(rows, indent=2) + "\n")
    print(
        "\n| family | term | pods | GPUJobs | FGD | most below pods | least above FGD |\n|---|---|---|---|---|---|---|"
    )
    for line in summary(rows):
        print(line)


def measured(policy: str, *, scene: Scene) -> dict[str, float]:
    """The allocation under a policy by load, and the refused pods; for pods that leave, its average over time."""
    outcome = run_one(policy, scene=scene)
    if scene.departures:
        return {"average": average_allocation(outcome) or 0.0, "failed": outcome.failed}
    return {load: report(outcome)["allocation"][load] for load in LOADS} | {"failed": outcome.failed}


def shown(found: Mapping[str, float]) -> str:
    """An allocation in a cell, with the number of refused pods."""
    return " / ".join(f"{value:.2f}" for load, value in found.items() if load != "failed") + f", {found['failed']}"


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each family and term: means over the seeds, and whether GPUJobs are where they should be.

    Differences are those at the first load.
    """
    lines = []
    for family, term in dict.fromkeys((row["family"], row["term"]) for row in rows):
        some = [row for row in rows if (row["family"], row["term"]) == (family, term)]
        pods, jobs, fgd = (
            np.array([next(iter(row[kind].values())) for row in some]) for kind in ("pods", "jobs", "fgd")
        )
        below, above = float((pods - jobs).max()), float((jobs - fgd).min())
        verdict = "" if below <= TOLERATED and above > 0 else " **missed**"
        means = " | ".join(f"{values.mean():.2f}" for values in (pods, jobs, fgd))
        lines.append(f"| {family} | {term} | {means} | {below:+.2f} | {above:+.2f}{verdict} |")
    return lines


def cpu(scene: Scene) -> Scene:
    """Pods that request no GPU come more often."""
    return _drawn(scene, weight=lambda shape: 1.0 if shape.gpus else MANY_WITHOUT_GPUS)


def shares(scene: Scene) -> Scene:
    """Only pods that request a share, or no GPU."""
    return _drawn(scene, weight=lambda shape: float(not shape.gpus or shape.is_share))


def several(scene: Scene) -> Scene:
    """Pods with several GPUs come more often."""
    return _drawn(scene, weight=lambda shape: MORE_OFTEN if shape.gpus > 1 else 1.0)


def multi(scene: Scene) -> Scene:
    """Pods with several GPUs request so large a part of the GPUs."""
    asked = [sum(shape.gpu_milli for shape in scene.pods if (shape.gpus > 1) is many) for many in (False, True)]
    often = SEVERAL_PART / (1 - SEVERAL_PART) * asked[0] / asked[1]
    return _drawn(scene, weight=lambda shape: often if shape.gpus > 1 else 1.0)


def named(scene: Scene) -> Scene:
    """A part of the GPU pods names one or two models, however few GPUs these have: users prefer what they know."""
    random = np.random.default_rng(scene.seed)
    largest: dict[str, int] = {}
    for node in scene.nodes:
        largest[node.model] = max(node.gpus, largest.get(node.model, 0))
    ways = [*((model,) for model in sorted(largest)), *combinations(sorted(largest), 2)]
    liked = random.dirichlet(np.ones(len(ways)))
    result = [visit.shape for visit in scene.visits]
    for at in np.flatnonzero(random.random(len(result)) < NAMED_PART).tolist():
        gpus = result[at].gpus
        weights = np.where([max(largest[model] for model in way) >= gpus for way in ways], liked, 0.0)
        if gpus and weights.sum():
            way = ways[int(random.choice(len(ways), p=weights / weights.sum()))]
            result[at] = replace(result[at], models=way)
    return replace(scene, visits=filling(result), pods=result)


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
    "cpu": cpu,
    "short": simulator.short_of_cpu,
    "shares": shares,
    "several": several,
    "multi": multi,
    "tied": simulator.tied_to_models,
    "named": named,
    "departures": simulator.leaving,
}


if __name__ == "__main__":
    main()
