"""Measure the result and the speed of each policy on whole traces: `python benchmarks/simulator.py --traces FOLDER`.

The folder contains a trace of the openb family: openb_node_list_gpu_node.csv, openb_pod_list_NAME.csv, and for each
seed arrivals_NAME_seedN.txt.gz and, where ties have a static order, node_order_seedN.txt. Without a folder, the
benchmark uses a generated cluster and workload of the same size; its results are not comparable with published ones.

Results go to out/simulator.json; the tables, in Markdown, to standard output.
"""

import argparse
import json
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.arrivals import filling, sample, tied, visiting
from dovetail.simulator.curve import report
from dovetail.simulator.parallel import Scene, run_all
from dovetail.simulator.trace import Node, columns_of
from dovetail_cli.simulation.scenario import Given
from dovetail_cli.simulation.scenario import scene as read_scene

FILLING = ("ph", "ph-online", "fgd", "bestfit", "gpupacking", "spread", "random")
RIVALS = ("ph", "ph-online", "fgd", "bestfit")
LIFETIMES = 5
SPEED_RUNS = 5
TIED_PERCENT = 33
SHORT_OF_CPU = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder with a trace; a generated one by default")
    parser.add_argument("--name", default="default", help="which pod list of the folder")
    parser.add_argument("--seeds", type=int, nargs="*", help="seeds; all that the folder has by default")
    parser.add_argument("--processes", type=int, default=2, help="policies that run at a time")
    parser.add_argument("--out", type=Path, default=Path("out/simulator.json"))
    asked = parser.parse_args()
    scenes = read(asked.traces, name=asked.name, seeds=asked.seeds) if asked.traces else {1: generated(seed=1)}
    first = next(iter(scenes.values()))
    results: dict[str, Any] = {
        "machine": f"{platform.processor() or platform.machine()}, Python {platform.python_version()}",
        "trace": f"openb {asked.name}" if asked.traces else "generated",
        "filling": {seed: measure(FILLING, one, processes=asked.processes) for seed, one in scenes.items()},
        "speed": speed(("ph", "ph-online", "fgd"), first),
        f"tied {TIED_PERCENT} %": measure(RIVALS, tied_to_models(first), processes=asked.processes),
        "short of CPU": measure(RIVALS, short_of_cpu(first), processes=asked.processes),
        "departures": measure(RIVALS, leaving(first), processes=asked.processes),
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(results, indent=2) + "\n")
    print(tables(results))


def read(folder: Path, *, name: str, seeds: Sequence[int] | None) -> dict[int, Scene]:
    """A scene for each seed that has arrivals."""
    found = {int(path.name.split("seed")[1].partition(".")[0]): path for path in folder.glob(f"arrivals_{name}_seed*")}
    orders = {seed: folder / f"node_order_seed{seed}.txt" for seed in found}
    return {
        seed: read_scene(
            Given(
                nodes=str(folder / "openb_node_list_gpu_node.csv"),
                pods=str(folder / f"openb_pod_list_{name}.csv"),
                arrivals=str(found[seed]),
                node_order=str(orders[seed]) if orders[seed].exists() else None,
                seed=seed,
            )
        ).scene
        for seed in sorted(seeds or found)
    }


def generated(*, seed: int) -> Scene:
    """A thousand nodes of four kinds, and two thousand pods of some sixty shapes."""
    random = np.random.default_rng(seed)
    kinds = [(96, 384, 8, "A100"), (104, 512, 2, "T4"), (64, 256, 8, "V100"), (16, 64, 1, "A10")]
    nodes = [
        Node(name=f"{kind}-{at}", cpu_milli=kinds[kind][0] * 1000, memory_mib=kinds[kind][1] * 1024,
             gpus=kinds[kind][2], model=kinds[kind][3])
        for at, kind in enumerate(random.choice(4, size=1000, p=[0.5, 0.3, 0.1, 0.1]).tolist())
    ]  # fmt: skip
    sizes = [shape for _ in range(60) for shape in [_any_shape(random)] * int(random.geometric(0.03))]
    capacity = sum(node.gpus for node in nodes) * 1000
    arriving = sample(sizes, capacity_milli=capacity, percent=130, random=random)
    return Scene(nodes=nodes, visits=filling(arriving), pods=sizes, seed=seed)


def _any_shape(random: np.random.Generator) -> Shape:
    cpu_milli = int(random.integers(2, 20)) * 1000
    gpus = int(random.choice([0, 1, 1, 1, 1, 1, 1, 2, 4, 8], p=[0.14, *[0.14] * 6, 0.01, 0.005, 0.005]))
    whole = gpus != 1 or random.random() < 0.5
    share_milli = 1000 if whole else int(random.integers(5, 95)) * 10
    return Shape(
        cpu_milli=cpu_milli * max(1, gpus),
        memory_mib=cpu_milli * 4 * max(1, gpus),
        gpus=gpus,
        share_milli=share_milli if gpus else 0,
    )


def tied_to_models(scene: Scene) -> Scene:
    """The same arrivals, some of them tied to one model."""
    shapes = [visit.shape for visit in scene.visits]
    random = np.random.default_rng(scene.seed)
    result = tied(shapes, columns=columns_of(scene.nodes), percent=TIED_PERCENT, random=random)
    return replace(scene, visits=filling(result), pods=result)


def short_of_cpu(scene: Scene) -> Scene:
    """The same arrivals on nodes with less CPU."""
    nodes = [replace(node, cpu_milli=int(node.cpu_milli * SHORT_OF_CPU)) for node in scene.nodes]
    return replace(scene, nodes=nodes)


def leaving(scene: Scene) -> Scene:
    """Pods of the same table that come and leave, at offered load 1."""
    random = np.random.default_rng(scene.seed)
    capacity = sum(node.gpus for node in scene.nodes) * 1000
    shapes = sample(scene.pods, capacity_milli=capacity, percent=100 * LIFETIMES, random=random)
    visits = visiting(shapes, capacity_milli=capacity, load=1.0, random=random)
    return replace(scene, visits=visits, departures=True)


def measure(names: Sequence[str], scene: Scene, *, processes: int) -> list[dict[str, Any]]:
    outcomes = run_all(names, scene=scene, processes=processes)
    return [report(outcome, departures=scene.departures) for outcome in outcomes]


def speed(names: Sequence[str], scene: Scene) -> dict[str, list[int]]:
    """Placements a second of CPU time, in rounds of all policies one after the other."""
    rounds = [measure(names, scene, processes=1) for _ in range(SPEED_RUNS)]
    return {name: [one[at]["placements_per_second"] for one in rounds] for at, name in enumerate(names)}


def tables(results: dict[str, Any]) -> str:
    """All results in Markdown."""
    by_seed = results["filling"]
    lines = [f"Trace: {results['trace']}. {results['machine']}.", ""]
    lines += ["| allocation at 100 / 130 % arrived | " + " | ".join(FILLING) + " |", "|---" * (len(FILLING) + 1) + "|"]
    for seed, runs in by_seed.items():
        lines.append(_line(f"seed {seed}", [_both(run["allocation"]) for run in runs]))
    if len(by_seed) > 1:
        means = [
            {
                load: statistics.mean(runs[at]["allocation"][load] for runs in by_seed.values())
                for load in ("100", "130")
            }
            for at in range(len(FILLING))
        ]
        lines.append(_line("mean", [_both(mean) for mean in means]))
    lines += ["", f"| one core, one policy at a time | placements/s, best of {SPEED_RUNS} (worst) |", "|---|---|"]
    lines += [_line(name, [f"{max(rates)} ({min(rates)})"]) for name, rates in results["speed"].items()]
    for title in [key for key in results if re.match("tied|short|departures", key)]:
        runs = results[title]
        lines += ["", f"| {title} | " + " | ".join(run["policy"] for run in runs) + " |"]
        lines += ["|---" * (len(runs) + 1) + "|"]
        lines.append(_line("allocation", [_both(run["allocation"]) for run in runs]))
        lines.append(_line("failed", [str(run["failed"]) for run in runs]))
    return "\n".join(lines)


def _both(allocation: dict[str, float]) -> str:
    if "average" in allocation:
        return f"{allocation['average']:.2f}"
    return f"{allocation['100']:.2f} / {allocation['130']:.2f}"


def _line(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
