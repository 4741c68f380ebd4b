"""Compare SPREAD and PACK on the same arrivals: `python benchmarks/policies.py --traces FOLDER`.

The results are how much is allocated and how many GPUs are in use by the arrived load, and the load of the GPUs when
half of their capacity has arrived. Without a folder, the benchmark uses a generated cluster and workload. The picture
goes to out/policies.png, the numbers to out/policies.json and, as a table in Markdown, to standard output.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from simulator import generated, read

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI
from dovetail.fragmentation.workload_mix import by_class
from dovetail.simulator.parallel import Scene
from dovetail.simulator.policies import POLICIES, Setting
from dovetail.simulator.trace import columns_of

# BALANCED is PACK here: nothing is measured beyond the promises.
SHOWN: Final = ("spread", "pack")
HALF_FULL: Final = 50
TABLE: Final = (25, 50, 75, 100, 130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The results of one policy: percent of the GPUs allocated, and in use, by percent arrived, and each GPU's load.

    The loads are in percent, the busiest GPU first, at the time when half has arrived.
    """

    policy: str
    allocated: dict[int, float]
    in_use: dict[int, float]
    loads: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder with a trace; a generated one by default")
    parser.add_argument("--name", default="default", help="which pod list of the folder")
    parser.add_argument("--seed", type=int, default=42, help="which arrivals of the folder")
    parser.add_argument("--out", type=Path, default=Path("out/policies.json"))
    asked = parser.parse_args()
    scene = read(asked.traces, name=asked.name, seeds=[asked.seed])[asked.seed] if asked.traces else generated(seed=1)
    runs = [run(policy, scene) for policy in SHOWN]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps([figures(one) for one in runs], indent=2) + "\n")
    draw(runs).savefig(asked.out.with_suffix(".png"), dpi=110)
    print(table(runs))


def run(policy: str, scene: Scene) -> Run:
    """Let one policy place all arrivals."""
    columns = columns_of(scene.nodes)
    chooser = POLICIES[policy].make(Setting(columns=columns, mix=by_class(Counter(scene.pods)), seed=scene.seed))
    allocated: dict[int, float] = {}
    in_use: dict[int, float] = {}
    loads: list[float] = []
    arrived = 0
    for visit in scene.visits:
        arrived += visit.shape.gpu_milli
        choice = chooser.choose(visit.shape)
        if choice is not None:
            columns.place(choice)
        percent = 100 * arrived // columns.capacity_milli
        if percent not in allocated:
            load = device_loads(columns)
            allocated[percent] = float(load.mean())
            in_use[percent] = float(100 * (load > 0).mean())
            loads = sorted(load.tolist(), reverse=True) if percent <= HALF_FULL else loads
    return Run(policy=policy, allocated=allocated, in_use=in_use, loads=loads)


def device_loads(columns: Columns) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The promised percentage of each GPU."""
    there = np.arange(columns.left.shape[1]) < columns.gpus[:, np.newaxis]
    return 100 * (1 - columns.left[there] / WHOLE_MILLI)


def figures(one: Run) -> dict[str, Any]:
    """The content of the file: the loads as tenths of the GPUs, the busiest first."""
    tenths = [float(np.mean(part)) for part in np.array_split(np.array(one.loads), 10)]
    return {"policy": one.policy, "allocated": one.allocated, "in_use": one.in_use, "load_by_tenth": tenths}


def table(runs: Sequence[Run]) -> str:
    """GPUs in use and allocated, by the arrived load."""
    lines = [f"| allocated / in use, % of the GPUs | {' | '.join(f'at {at} %' for at in TABLE)} |"]
    lines.append("|---" * (len(TABLE) + 1) + "|")
    for one in runs:
        cells = [f"{_at(one.allocated, at):.1f} / {_at(one.in_use, at):.1f}" for at in TABLE]
        lines.append(f"| {one.policy.upper()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _at(curve: dict[int, float], percent: int) -> float:
    return curve[max(at for at in curve if at <= percent)]


def draw(runs: Sequence[Run]) -> Figure:
    """Draw three plots in a row."""
    figure = Figure(figsize=(14, 4.6), layout="constrained")
    allocated, in_use, loads = figure.subplots(1, 3)
    for one in runs:
        allocated.plot(list(one.allocated), list(one.allocated.values()), label=one.policy.upper(), linewidth=1.8)
        in_use.plot(list(one.in_use), list(one.in_use.values()), linewidth=1.8)
        loads.plot(np.linspace(0, 100, len(one.loads)), one.loads, linewidth=1.8)
    arrived = "arrived, % of GPUs"
    allocated.set(title="Allocated", xlabel=arrived, ylabel="% of GPUs")
    in_use.set(title="GPUs that anything runs on", xlabel=arrived, ylabel="% of GPUs")
    loads.set(
        title=f"Load of the GPUs at {HALF_FULL} % arrived", xlabel="GPUs, the busiest first, %", ylabel="promised, %"
    )
    for axes in (allocated, in_use, loads):
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = allocated.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


if __name__ == "__main__":
    main()
