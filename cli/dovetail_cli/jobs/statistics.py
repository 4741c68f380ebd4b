"""Sums over jobs that have ended, for people and for programs."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from dovetail.api.historyquery import Grouping, HistoryQuerySpec, HistorySums
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import history
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.times import brief

_GROUPS: Final[dict[str, Grouping]] = {"user": "User", "name": "Name", "project": "Project", "day": "Day"}
_HOUR: Final = 3600.0
# What is a number, for CSV; the counts by phase are no single one.
NUMBERS: Final = (
    "group", "jobs", "success_rate", "gpu_hours", "run_hours", "mean_wait_seconds", "median_wait_seconds",
    "p95_wait_seconds", "mean_run_seconds", "mean_utilization", "peak_memory_mib",
)  # fmt: skip
COLUMNS: Final = ("JOBS", "SUCCEEDED", "GPU-HOURS", "WAIT-MEAN", "WAIT-MEDIAN", "WAIT-P95", "RUN-MEAN", "UTILIZATION")


def question(
    *, since: str, users: Collection[str], names: Collection[str], projects: Collection[str] = (), by: str | None
) -> HistoryQuerySpec:
    """What the options ask. Raises `UsageError`."""
    if by is not None and by.lower() not in _GROUPS:
        raise UsageError(f'--by "{by}": allowed are {", ".join(_GROUPS)}')
    return HistoryQuerySpec(
        since=since,
        users=sorted(users),
        names=sorted(names),
        projects=sorted(projects),
        group_by="Nothing" if by is None else _GROUPS[by.lower()],
    )


def show(
    asked: HistoryQuerySpec, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None
) -> None:
    """Print the answer."""

    async def go(cluster: Cluster) -> Sequence[HistorySums]:
        return (await history.ask(cluster, asked)).sums

    print(render(work(go, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True), asked, form=form))


def render(sums: Sequence[HistorySums], asked: HistoryQuerySpec, *, form: str) -> str:
    """The sums in any of the formats; as text, all jobs together are lines of their own."""
    if form in {"json", "yaml"}:
        return output.render([record(each) for each in sums], columns=(), form=form)
    if form == "csv":
        return output.as_csv([record(each) for each in sums], columns=NUMBERS)
    if asked.group_by == "Nothing":
        return _lines(sums[0]) if sums else "No job has ended in that time."
    first = (asked.group_by or "").upper()
    rows = [{first: each.group or "-", **_cells(each)} for each in sums]
    return output.render(rows, columns=(first, *COLUMNS), form=form)


def record(sums: HistorySums) -> dict[str, Any]:
    """The sums as programs read them: numbers as numbers."""
    return {
        "group": sums.group,
        "jobs": sums.jobs,
        "by_phase": dict(sums.by_phase),
        "success_rate": _success(sums),
        "gpu_hours": sums.gpu_seconds / _HOUR,
        "run_hours": sums.run_seconds / _HOUR,
        "mean_wait_seconds": sums.mean_wait_seconds,
        "median_wait_seconds": sums.median_wait_seconds,
        "p95_wait_seconds": sums.p95_wait_seconds,
        "mean_run_seconds": sums.run_seconds / sums.jobs,
        "mean_utilization": sums.mean_utilization,
        "peak_memory_mib": sums.peak_mib,
    }


def _cells(sums: HistorySums) -> dict[str, str]:
    return {
        "JOBS": str(sums.jobs),
        "SUCCEEDED": f"{100 * _success(sums):.0f} %",
        "GPU-HOURS": f"{sums.gpu_seconds / _HOUR:.2f}",
        "WAIT-MEAN": _span(sums.mean_wait_seconds),
        "WAIT-MEDIAN": _span(sums.median_wait_seconds),
        "WAIT-P95": _span(sums.p95_wait_seconds),
        "RUN-MEAN": brief(sums.run_seconds / sums.jobs),
        "UTILIZATION": "-" if sums.mean_utilization is None else f"{100 * sums.mean_utilization:.0f} %",
    }


def _lines(sums: HistorySums) -> str:
    phases = ", ".join(f"{count} {phase}" for phase, count in sums.by_phase.items())
    cells = _cells(sums)
    told = [
        ("Jobs", f"{sums.jobs} ({phases})"),
        ("Success rate", cells["SUCCEEDED"]),
        ("GPU hours", cells["GPU-HOURS"]),
        ("Wait", f"mean {cells['WAIT-MEAN']}, median {cells['WAIT-MEDIAN']}, 95 % within {cells['WAIT-P95']}"),
        ("Run time", f"mean {cells['RUN-MEAN']}, in all {sums.run_seconds / _HOUR:.2f} h"),
        ("GPU utilization", cells["UTILIZATION"]),
        ("Peak memory", f"{sums.peak_mib} MiB" if sums.peak_mib else "-"),
    ]
    return "\n".join(f"{name + ':':<17}{text}" for name, text in told)


def _success(sums: HistorySums) -> float:
    return sums.by_phase.get("Succeeded", 0) / sums.jobs


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else brief(seconds)
