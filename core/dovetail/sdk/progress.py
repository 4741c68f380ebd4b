"""What a wait shows: a line for each change on a terminal, one live view in a notebook."""

import sys
from collections.abc import Callable
from typing import Final

from dovetail.answers.jobs import JobRow
from dovetail.sdk import notebook

Show = Callable[[JobRow], None]
# True shows the progress, False nothing, None only to a person: on a terminal or in a notebook.
Progress = Show | bool | None
FINISHED: Final = frozenset({"Succeeded", "Failed", "Cancelled", "TimedOut"})


def shower(progress: Progress) -> Show:
    """The function that gets each state of a job."""
    if callable(progress):
        return progress
    view = None if progress is False else notebook.view()
    if view is not None:
        return lambda row: view.show(row.card(), text=sentence(row))
    return _Lines() if progress or (progress is None and sys.stderr.isatty()) else _nothing


def sentence(row: JobRow) -> str:
    """A job in one line: where it is, or why it waits."""
    name = f"Job {row.name if row.number is None else row.number}"
    place = f" on {', '.join(row.nodes)}" if row.nodes and row.phase not in FINISHED else ""
    position = "" if row.position is None else f" (position {row.position})"
    why = f": {row.message}" if row.message else ""
    return f"{name} is {row.phase}{place}{position}{why}"


class _Lines:
    """Prints a line when it differs from the last one."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, row: JobRow) -> None:
        line = sentence(row)
        if line != self._last:
            self._last = line
            sys.stderr.write(f"{line}\n")


def _nothing(_row: JobRow) -> None:
    """Show nothing."""
