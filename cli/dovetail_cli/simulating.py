"""What `dovetail simulate` does: files into a scene, policies beside a progress bar, results as text and picture."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from dovetail_cli import output
from dovetail_cli.errors import CommandError, MissingError, UsageError
from dovetail_cli.files import read_text

try:
    from dovetail.simulator.policies import POLICIES
except ModuleNotFoundError as error:
    if error.name != "highspy":
        raise
    raise CommandError('`dovetail simulate` needs highspy: pip install "dovetail-gpu[simulate]"') from error

from dovetail.fragmentation.shapes import WHOLE_MILLI, Shape
from dovetail.simulator import arrivals as drawing
from dovetail.simulator import trace
from dovetail.simulator.curve import LOADS, report
from dovetail.simulator.experiment import Outcome
from dovetail.simulator.parallel import Scene, run_all

PICTURES: Final = (".png", ".svg", ".pdf")
DRAWN_PERCENT: Final = 130
LIFETIMES: Final = 4
_LARGEST_LOAD: Final = 10.0


def policy_names(text: str) -> list[str]:
    """The policies that a comma-separated list names."""
    names = [name.strip() for name in text.split(",")]
    unknown = next((name for name in names if name not in POLICIES), None)
    if unknown is not None:
        known = ", ".join(f"{name} ({entry.help})" for name, entry in POLICIES.items())
        raise UsageError(f'--policy "{unknown}": no such policy, allowed are {known}')
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f'--policy "{text}": {twice} is named twice')
    return names


def check_plot(name: str | None) -> Path | None:
    """Where the picture goes. Raises before anything runs, not after."""
    if name is None:
        return None
    path = Path(name)
    if path.suffix not in PICTURES:
        raise UsageError(f'--plot "{name}": unknown kind of picture, allowed are {", ".join(PICTURES)}')
    if not path.parent.is_dir():
        raise MissingError(f'--plot "{name}": there is no folder {path.parent}')
    _drawing()
    return path


def check_processes(processes: int | None, *, policies: int) -> int:
    """How many policies run at a time."""
    if processes is None:
        return min(policies, os.cpu_count() or 1)
    if processes < 1:
        raise UsageError(f"--processes {processes}: expected 1 or more")
    return min(policies, processes)


def scene(
    *,
    nodes: str,
    pods: str,
    arrivals: str | None,
    node_order: str | None,
    departures: float | None,
    tied: float,
    seed: int,
) -> Scene:
    """What all policies meet, from files and options. Raises `UsageError` for a line or a value that cannot be."""
    _check_numbers(departures=departures, tied=tied, seed=seed)
    try:
        listed = trace.parse_nodes(read_text(nodes), source=nodes)
        if node_order is not None:
            listed = trace.parse_order(read_text(node_order), source=node_order, nodes=listed)
        table = trace.parse_pods(read_text(pods), source=pods)
        recorded = trace.parse_arrivals(read_text(arrivals), source=arrivals, pods=table) if arrivals else None
    except trace.TraceError as error:
        raise UsageError(str(error)) from error
    capacity_milli = sum(node.gpus for node in listed) * WHOLE_MILLI
    if not capacity_milli:
        raise UsageError(f'{nodes}, column "gpu": every node has 0, expected at least one GPU')
    to_come = list(table.values()) if recorded else _with_devices(table.values(), source=pods)
    return _arriving(
        Scene(nodes=listed, visits=(), pods=to_come, departures=departures is not None, seed=seed),
        recorded=recorded,
        capacity_milli=capacity_milli,
        load=departures,
        tied=tied,
    )


def _arriving(
    empty: Scene, *, recorded: Sequence[Shape] | None, capacity_milli: int, load: float | None, tied: float
) -> Scene:
    """The scene with its arrivals: recorded or drawn, tied to models, and leaving or not."""
    random = np.random.default_rng(empty.seed)
    shapes, pods = recorded, empty.pods
    if shapes is None:
        percent = DRAWN_PERCENT if load is None else 100 * load * (1 + LIFETIMES)
        shapes = drawing.sample(pods, capacity_milli=capacity_milli, percent=percent, random=random)
    if tied:
        # The mix to come is then that of the arrivals: the table knows nothing of the models.
        pods = shapes = drawing.tied(shapes, columns=trace.columns_of(empty.nodes), percent=tied, random=random)
    if load is None:
        return replace(empty, visits=drawing.filling(shapes), pods=pods)
    visits = drawing.visiting(shapes, capacity_milli=capacity_milli, load=load, random=random)
    return replace(empty, visits=visits, pods=pods)


def _with_devices(shapes: Iterable[Shape], *, source: str) -> list[Shape]:
    """The shapes to draw from, of which one at least asks for devices."""
    drawable = list(shapes)
    if not any(shape.gpus for shape in drawable):
        raise UsageError(f'{source}, column "num_gpu": every pod has 0, expected at least one that asks for a GPU')
    return drawable


def run(names: Sequence[str], scene: Scene, *, processes: int) -> list[Outcome]:
    """All policies, with a progress bar where a person looks."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn()
    with Progress(*shown, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        tasks = {name: progress.add_task(name, total=len(scene.visits)) for name in names}
        return run_all(
            names, scene, processes=processes, notice=lambda name, done: progress.update(tasks[name], completed=done)
        )


def text(outcomes: Sequence[Outcome], *, form: str, departures: bool) -> str:
    """The results in one of the formats."""
    runs = [report(outcome, departures=departures) for outcome in outcomes]
    if form == "json":
        return output.as_json({"runs": runs})
    if form == "yaml":
        return output.as_yaml({"runs": runs})
    rows = [_row(one) for one in runs]
    lines = output.render(rows, columns=list(rows[0]), form=form)
    if form == "csv":
        return lines
    measure = "over time after one mean lifetime" if departures else f"at {', '.join(map(str, LOADS))} % arrived"
    return f"{lines}\n\nAllocation in percent of the GPUs, {measure}."


def save_plot(outcomes: Sequence[Outcome], path: Path, *, departures: bool) -> None:
    """Write the picture."""
    _drawing().draw(outcomes, departures=departures).savefig(path, dpi=90)


def _drawing() -> ModuleType:
    try:
        from dovetail.simulator import plot
    except ModuleNotFoundError as error:
        raise CommandError(f'--plot needs {error.name}: pip install "dovetail-gpu[simulate]"') from error
    return plot


def _row(one: dict[str, Any]) -> dict[str, str]:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    row = {"POLICY": str(one["policy"])}
    row |= {load.upper(): shown(value) for load, value in one["allocation"].items()}
    if "100" in one["fragmentation"]:
        row["FRAGMENTS AT 100"] = shown(one["fragmentation"]["100"])
    return row | {"FAILED": str(one["failed"]), "PLACEMENTS/S": str(one["placements_per_second"])}


def _check_numbers(*, departures: float | None, tied: float, seed: int) -> None:
    if departures is not None and not 0 < departures <= _LARGEST_LOAD:
        raise UsageError(f"--departures {departures:g}: expected a load above 0, up to {_LARGEST_LOAD:g}")
    if not 0 <= tied <= 100:
        raise UsageError(f"--tied {tied:g}: expected a percentage, 0 to 100")
    if seed < 0:
        raise UsageError(f"--seed {seed}: expected 0 or more")
