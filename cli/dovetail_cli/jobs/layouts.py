"""gqueue's two other shapes of a table: by state, and as a tree of dependencies. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail_cli.jobs import job_rows
from dovetail_cli.jobs.job_rows import View
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError

_NAME: Final = "NAME"


def check(*, by_state: bool, tree: bool, form: str) -> None:
    """Raises `UsageError` for shapes that go not together, or not with the form."""
    if by_state and tree:
        raise UsageError("-g and -t go not together: one groups by state, the other by dependency")
    if (by_state or tree) and form != "table":
        raise UsageError(f"{'-g' if by_state else '-t'} arranges a table: it cannot go with -o {form}")


def by_state(jobs: Sequence[GPUJob], fields: Sequence[str], *, view: View) -> str:
    """A table for each state, in the order in which jobs go through them, with the number of jobs above it."""
    parts = []
    for short in dict.fromkeys(job_rows.SHORT.values()):
        chosen = [job for job in jobs if job_rows.SHORT[job_rows.phase_of(job)] == short]
        if chosen:
            rows = [job_rows.row(job, fields, view=view) for job in chosen]
            title = f"{job_rows.long_name(short)} ({short}): {len(chosen)}"
            parts.append(f"{output.bold(title)}\n{output.render(rows, columns=fields, form='table')}")
    return "\n\n".join(parts) or output.render([], columns=fields, form="table")


def tree(jobs: Sequence[GPUJob], fields: Sequence[str], *, view: View) -> str:
    """One table in which those that wait for a job stand indented below it: below the last one, if for several."""
    rows = []
    for job, depth in _in_depth(jobs):
        row = job_rows.row(job, fields, view=view)
        if _NAME in row and depth:
            row[_NAME] = f"{'  ' * (depth - 1)}└ {row[_NAME]}"
        rows.append(row)
    return output.render(rows, columns=fields, form="table")


def _in_depth(jobs: Sequence[GPUJob]) -> Iterator[tuple[GPUJob, int]]:
    shown = {job.metadata.name: job for job in jobs}
    below: dict[str, list[GPUJob]] = {}
    for job in jobs:
        above = [each.name for each in job.spec.dependencies if each.name in shown and each.name != job.metadata.name]
        below.setdefault(above[-1] if above else "", []).append(job)
    seen: set[str] = set()
    # Those that wait for each other in a circle hang below nothing: they come last.
    left = [(job, 0) for job in (*below.get("", ()), *jobs)][::-1]
    while left:
        job, depth = left.pop()
        if job.metadata.name not in seen:
            seen.add(job.metadata.name)
            yield job, depth
            left += [(each, depth + 1) for each in reversed(below.get(job.metadata.name, []))]
