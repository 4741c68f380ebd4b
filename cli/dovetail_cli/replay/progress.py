"""The progress of a campaign, on standard error.

Redrawn on a terminal; elsewhere a line every few seconds.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dovetail.formats.durations import brief
from dovetail_cli.replay.campaign import Watcher
from dovetail_cli.replay.tally import Counts, Tally

_LINE_SECONDS: Final = 5.0


@contextmanager
def progress(*, title: str) -> Iterator[Watcher]:
    """A watcher for `campaign.run` that shows how things stand."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, said="")

        def watch(tally: Tally, standing: Counts) -> None:
            ended = standing.succeeded + standing.failed + standing.hopeless
            bar.update(task, total=standing.jobs, completed=ended, said=sentence(tally, standing=standing))

        yield watch


class _Lines:
    """A line whenever the last one is some seconds old."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told_at = float("-inf")

    def __call__(self, tally: Tally, standing: Counts) -> None:
        now = time.monotonic()
        if now - self._told_at < _LINE_SECONDS and not standing.done:
            return
        self._told_at = now
        print(f"{brief(now - self._began):>7}  {sentence(tally, standing=standing)}", file=sys.stderr, flush=True)


def sentence(tally: Tally, *, standing: Counts) -> str:
    """How things stand, in one line."""
    ratio = standing.allocated_milli / tally.device_milli if tally.device_milli else 0.0
    reasons = ", ".join(f"{reason} {count}" for reason, count in standing.reasons.most_common(3))
    waiting = f"{standing.waiting} wait ({reasons})" if reasons else f"{standing.waiting} wait"
    left = standing.jobs - standing.submitted
    return (
        (f"{left} to submit, " if left else "")
        + f"{waiting}, {standing.running} run, {standing.succeeded} done"
        + (f", {standing.failed} failed" if standing.failed else "")
        + f"; {ratio:.0%} of the GPUs allocated"
    )
