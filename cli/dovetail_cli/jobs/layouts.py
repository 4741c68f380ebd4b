"""gqueue's two other layouts of a table: by state, and as a tree of dependencies. Pure."""

from collections.abc import Sequence
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.query.jobs import groups
from dovetail.query.jobs.columns import View
from dovetail.query.jobs.states import long_name
from dovetail_cli.jobs import job_rows
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError

_NAME: Final = "NAME"


def check(*, by_state: bool, tree: bool, form: str) -> None:
    """Raises `UsageError` for layouts that exclude each other, or the format."""
    if by_state and tree:
        raise UsageError("-g and -t exclude each other: one groups by state, the other by dependency")
    if (by_state or tree) and form != "table":
        raise UsageError(f"{'-g' if by_state else '-t'} arranges a table: it cannot go with -o {form}")


def by_state(jobs: Sequence[GPUJob], fields: Sequence[str], *, view: View) -> str:
    """A table for each state, below its number of jobs.

    The states are in the order in which jobs pass through them.
    """
    parts = []
    for short, chosen in groups.by_state(jobs).items():
        rows = [job_rows.row(job, fields=fields, view=view) for job in chosen]
        title = f"{long_name(short)} ({short}): {len(chosen)}"
        parts.append(f"{output.bold(title)}\n{output.render(rows, columns=fields, form='table')}")
    return "\n\n".join(parts) or output.render([], columns=fields, form="table")


def tree(jobs: Sequence[GPUJob], fields: Sequence[str], *, view: View) -> str:
    """One table, in which a job is indented below the job that it waits for."""
    rows = []
    for job, depth in groups.dependency_tree(jobs):
        row = job_rows.row(job, fields=fields, view=view)
        if _NAME in row and depth:
            row[_NAME] = f"{'  ' * (depth - 1)}└ {row[_NAME]}"
        rows.append(row)
    return output.render(rows, columns=fields, form="table")
