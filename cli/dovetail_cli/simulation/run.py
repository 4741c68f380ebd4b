"""Run `dovetail simulate`: each policy with a progress bar, results as text and picture."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dovetail.simulator.curve import LOADS, by_kind, report
from dovetail.simulator.experiment import Outcome
from dovetail.simulator.parallel import Scene, run_all
from dovetail.simulator.planned_jobs import TERMS
from dovetail.simulator.policies import POLICIES
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError

PICTURES: Final = (".png", ".svg", ".pdf")


def policy_names(text: str, *, jobs: bool) -> list[str]:
    """The policies that a comma-separated list names; the usual ones for an empty list.

    For GPUJobs they are the fragmentation terms.
    """
    if not text:
        return ["ph", "fgd", "bestfit", *([] if jobs else ["gpupacking"])]
    names = [name.strip() for name in text.split(",")]
    unknown = next((name for name in names if name not in (TERMS if jobs else POLICIES)), None)
    if unknown is not None:
        if jobs:
            raise UsageError(f'--policy "{unknown}": no such term of the queue, allowed are {", ".join(TERMS)}')
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


def run(names: Sequence[str], *, scene: Scene, processes: int) -> list[Outcome]:
    """All policies, with a progress bar where a person looks."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn()
    with Progress(*shown, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        tasks = {name: progress.add_task(name, total=len(scene.visits)) for name in names}
        return run_all(
            names,
            scene=scene,
            processes=processes,
            notice=lambda name, done: progress.update(tasks[name], completed=done),
        )


def text(outcomes: Sequence[Outcome], *, form: str, departures: bool, said: Sequence[str]) -> str:
    """The results in one of the formats; `said` are sentences about what the policies met."""
    runs = [report(outcome, departures=departures) for outcome in outcomes]
    if form in {"json", "yaml"}:
        return output.as_json({"runs": runs}) if form == "json" else output.as_yaml({"runs": runs})
    kinds = by_kind({kind: 0 for one in runs for kind in one["failed_by_class"]})
    rows = [_row(one) for one in runs]
    failures = [{kind.upper(): str(one["failed_by_class"].get(kind, 0)) for kind in kinds} for one in runs]
    if form == "csv":
        both = [row | failed for row, failed in zip(rows, failures, strict=True)]
        return output.render(both, columns=list(both[0]), form=form)
    parts = [output.render(rows, columns=list(rows[0]), form=form)]
    if kinds:
        named = [{"FAILED PODS": row["POLICY"]} | failed for row, failed in zip(rows, failures, strict=True)]
        parts.append(output.render(named, columns=list(named[0]), form=form))
    measure = "over time after one mean lifetime" if departures else f"at {', '.join(map(str, LOADS))} % arrived"
    return "\n\n".join([*parts, "\n".join([f"Allocation in percent of the GPUs, {measure}.", *said])])


def save_plot(outcomes: Sequence[Outcome], *, path: Path, departures: bool) -> None:
    """Write the picture. Raises `CommandError`."""
    try:
        _drawing().draw(outcomes, departures=departures).savefig(path, dpi=90)
    except OSError as error:
        raise CommandError(f'--plot "{path}": cannot be written: {error.strerror}') from error


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
