"""Sums over jobs that have ended, for people and for programs."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from dovetail.api.historyquery import Grouping, HistoryQuerySpec
from dovetail.formats.durations import brief
from dovetail.query.jobs.statistics import JobStatistics, job_statistics
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import history
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError

_GROUPS: Final[dict[str, Grouping]] = {"user": "User", "name": "Name", "project": "Project", "day": "Day"}
# What is a number, for CSV; the counts by phase are no single one.
NUMBERS: Final = (
    "group", "jobs", "successRate", "gpuHours", "runHours", "meanWaitSeconds", "medianWaitSeconds",
    "p95WaitSeconds", "meanRunSeconds", "meanUtilization", "peakMemoryMiB",
)  # fmt: skip
# The column in which the figures of the text begin.
_TITLE: Final = 17
_NOTHING: Final = "No job has ended in that time: `gstats --since 90d` looks further back."
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

    async def go(cluster: Cluster) -> list[JobStatistics]:
        return [job_statistics(sums) for sums in (await history.ask(cluster, question=asked)).sums]

    print(
        render(
            work(go, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True), asked=asked, form=form
        )
    )


def render(sums: Sequence[JobStatistics], *, asked: HistoryQuerySpec, form: str) -> str:
    """The sums in any of the formats; as text, all jobs together are lines of their own."""
    if form in {"json", "yaml"}:
        return output.render([msgspec.to_builtins(each) for each in sums], columns=(), form=form)
    if form == "csv":
        return output.as_csv([msgspec.to_builtins(each) for each in sums], columns=NUMBERS)
    if asked.group_by == "Nothing":
        return output.wrapped(_lines(sums[0]), hang=_TITLE) if sums else _NOTHING
    first = (asked.group_by or "").upper()
    rows = [{first: each.group or "-", **_cells(each)} for each in sums]
    return output.render(rows, columns=(first, *COLUMNS), form=form)


def _cells(sums: JobStatistics) -> dict[str, str]:
    return {
        "JOBS": str(sums.jobs),
        "SUCCEEDED": "-" if sums.success_rate is None else f"{100 * sums.success_rate:.0f} %",
        "GPU-HOURS": f"{sums.gpu_hours:.2f}",
        "WAIT-MEAN": _span(sums.mean_wait_seconds),
        "WAIT-MEDIAN": _span(sums.median_wait_seconds),
        "WAIT-P95": _span(sums.p95_wait_seconds),
        "RUN-MEAN": brief(sums.mean_run_seconds),
        "UTILIZATION": "-" if sums.mean_utilization is None else f"{100 * sums.mean_utilization:.0f} %",
    }


def _lines(sums: JobStatistics) -> str:
    phases = ", ".join(f"{count} {phase}" for phase, count in sums.by_phase.items())
    cells = _cells(sums)
    rows = [
        ("Jobs", f"{sums.jobs} ({phases})"),
        ("Success rate", cells["SUCCEEDED"]),
        ("GPU hours", cells["GPU-HOURS"]),
        ("Wait", f"mean {cells['WAIT-MEAN']}, median {cells['WAIT-MEDIAN']}, 95 % within {cells['WAIT-P95']}"),
        ("Run time", f"mean {cells['RUN-MEAN']}, in all {sums.run_hours:.2f} h"),
        ("GPU utilization", cells["UTILIZATION"]),
        ("Peak memory", f"{sums.peak_memory_mib} MiB" if sums.peak_memory_mib else "-"),
    ]
    return "\n".join(f"{name + ':':<{_TITLE}}{text}" for name, text in rows)


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else brief(seconds)
