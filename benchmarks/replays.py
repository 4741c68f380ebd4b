"""What the replays of a trace through a real control plane have in common: options, the part of a trace, the report."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.simulator.curve import LOADS, allocation_at
from dovetail.simulator.experiment import Outcome
from dovetail.simulator.parallel import Scene


def options(doc: str, *, name: str, limit_nodes: int | None, generates: bool) -> argparse.ArgumentParser:
    """The options of every replay.

    `name` is that of its results' file, and `limit_nodes` a default. One that `generates` arrivals needs no trace.
    """
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    traces = "folder with a trace; a generated one by default" if generates else "folder with a trace"
    found.add_argument("--traces", type=Path, required=not generates, help=traces)
    found.add_argument("--seed", type=int, default=42, help="which arrivals of the folder (default: %(default)s)")
    found.add_argument("--limit-nodes", type=int, default=limit_nodes, help="how many of the nodes [%(default)s]")
    found.add_argument("--percent", type=float, default=130, help="load to arrive (default: %(default)s)")
    found.add_argument("--json", type=Path, default=Path("out") / f"{name}.json", help="where it is written too")
    return found


def part_of(scene: Scene, *, nodes: int, percent: float, seed: int) -> Scene:
    """So many of the nodes, drawn by the seed, and the arrivals up to a load in percent of their GPUs."""
    chosen = np.random.default_rng(seed).choice(len(scene.nodes), size=nodes, replace=False)
    kept = [scene.nodes[at] for at in sorted(chosen.tolist())]
    wanted = percent / 100 * sum(node.gpus for node in kept) * 1000
    asked = np.cumsum([visit.shape.gpu_milli for visit in scene.visits])
    return replace(scene, nodes=kept, visits=scene.visits[: int(np.searchsorted(asked, wanted)) + 1])


def outcome_of(placed: np.typing.NDArray[np.bool_], *, scene: Scene, policy: str) -> Outcome:
    """The outcome of a replay in which the arrivals `placed` [n] got a place."""
    milli = np.array([visit.shape.gpu_milli for visit in scene.visits], dtype=np.float64)
    return Outcome(
        policy=policy,
        capacity_milli=sum(node.gpus for node in scene.nodes) * 1000,
        at=np.arange(len(milli), dtype=np.float64),
        arrived_milli=np.cumsum(milli),
        allocated_milli=np.cumsum(milli * placed),
        fragments_milli={},
        refused={},
        placed=int(placed.sum()),
        seconds=0.0,
    )


def report(simulated: Outcome, *, real: Outcome, called: str, path: Path, more: Mapping[str, Any]) -> None:
    """Print both allocations by load and write them to a file, with `more`; `called` names the real one."""
    rows = {}
    for load in LOADS:
        both = allocation_at(simulated, percent=load), allocation_at(real, percent=load)
        if both[0] is not None and both[1] is not None:
            rows[load] = {"simulator": both[0], called: both[1]}
            print(f"  {load:>3} % arrived: simulator {both[0]:6.2f}, {called} {both[1]:6.2f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**more, "allocation": rows}, indent=2) + "\n")
