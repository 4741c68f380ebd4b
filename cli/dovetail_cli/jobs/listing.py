"""Which jobs a person asks for, in which order and form, and the looking itself."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.historyquery import HistoryQuerySpec
from dovetail.api.resources import GPUNODES
from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.jobs import history, job_rows, layouts
from dovetail_cli.ui import output, projects, selection, times
from dovetail_cli.ui.errors import MissingError, UsageError

_SHORTEST_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The query of a list command: which jobs, in which order, and how they are shown.

    states      only these states, as Slurm's letters
    ids         only these numbers, ranges and names; each must exist
    names       only jobs of these names
    fields      the columns
    sort        the columns to sort by
    limit       the first jobs, or the last ones if negative; None for all
    everything  ended jobs too
    completed   only ended jobs
    users       only jobs of these users
    projects    only jobs of these projects
    since       no jobs that ended before this time (RFC 3339)
    by_state    one table for each state
    tree        one table with jobs below those that they wait for
    """

    states: frozenset[str] = frozenset()
    ids: Sequence[selection.Wanted] = ()
    names: frozenset[str] = frozenset()
    fields: Sequence[str] = job_rows.DEFAULT_FIELDS
    sort: Sequence[str] = ()
    limit: int | None = None
    everything: bool = False
    completed: bool = False
    users: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    since: str | None = None
    by_state: bool = False
    tree: bool = False

    def choose(self, jobs: Sequence[GPUJob], *, view: job_rows.View) -> list[GPUJob]:
        """The jobs that are asked for. Raises `MissingError` when one is named that does not exist."""
        if self.ids:
            jobs, missing = selection.select(jobs, self.ids)
            if missing:
                raise MissingError(selection.none_such(missing))
        if self.since is not None:
            began = times.parse_timestamp(self.since)
            jobs = [job for job in jobs if not _has_ended_before(job, began)]
        if self.names:
            jobs = [job for job in jobs if job.metadata.name in self.names]
        if self.users:
            jobs = [job for job in jobs if job.metadata.annotations.get(names.USER) in self.users]
        if self.projects:
            jobs = [job for job in jobs if projects.of(job) in self.projects]
        if self.states:
            jobs = [job for job in jobs if job_rows.SHORT[job_rows.phase_of(job)] in self.states]
        elif self.completed:
            jobs = [job for job in jobs if not job_rows.is_unfinished(job)]
        elif not (self.everything or self.ids or self.names or self.since):
            jobs = [job for job in jobs if job_rows.is_unfinished(job)]
        jobs = job_rows.sort_jobs(jobs, self.sort, view=view)
        if self.limit is None:
            return jobs
        return jobs[: self.limit] if self.limit > 0 else jobs[self.limit :]

    def answer(self, jobs: Sequence[GPUJob], view: job_rows.View, *, form: str) -> str:
        """The text to print."""
        chosen = self.choose(jobs, view=view)
        if form in {"json", "yaml"}:
            return output.render([job_rows.record(job, view=view) for job in chosen], columns=(), form=form)
        if self.by_state or self.tree:
            arrange = layouts.by_state if self.by_state else layouts.tree
            return arrange(chosen, self.fields, view=view)
        rows = [job_rows.row(job, self.fields, view=view) for job in chosen]
        return output.render(rows, columns=self.fields, form=form)


def _has_ended_before(job: GPUJob, moment: datetime | None) -> bool:
    ended = times.parse_timestamp(job.status.completion_time)
    return moment is not None and ended is not None and ended < moment


def parse_limit(text: str | None) -> int | None:
    """`5` and `+5` are the first five, `-5` the last five. Raises `UsageError`."""
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number == 0:
        raise UsageError(f'-n "{text}": write a whole number, such as 10 for the first or -10 for the last ten')
    return number


def parse_names(texts: list[str] | None) -> frozenset[str]:
    """Names separated by commas."""
    return frozenset(name.strip() for text in texts or () for name in text.split(",") if name.strip())


def parse_users(text: str | None) -> frozenset[str]:
    """The users that `-u` names; none stands for all, as `all` does."""
    users = parse_names(None if text is None else [text])
    return frozenset() if "all" in users else users


def check_interval(seconds: float, *, form: str) -> float:
    """Seconds between two looks. Raises `UsageError` when they are too few, or when the form is none to look at."""
    if form != "table":
        raise UsageError(f"-w shows a table again and again: it cannot go with -o {form}")
    if seconds < _SHORTEST_SECONDS:
        raise UsageError(f"--interval {seconds:g}: at least {_SHORTEST_SECONDS} seconds")
    return seconds


def show(
    question: Question,
    *,
    form: str,
    again_seconds: float | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Print the answer, once or until Ctrl-C."""

    async def look_and_print(cluster: Cluster) -> None:
        while True:
            jobs, view = await _look(cluster)
            if question.since is not None:
                past_ones = await history.records(cluster, HistoryQuerySpec(since=question.since))
                jobs = history.joined(jobs, past_ones)
            text = question.answer(jobs, view, form=form)
            if again_seconds is None:
                print(text)
                return
            _redraw(text)
            await asyncio.sleep(again_seconds)

    try:
        work(look_and_print, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    except KeyboardInterrupt:
        # The way to end a watch; everywhere else it is an interruption.
        if again_seconds is None:
            raise


async def _look(cluster: Cluster) -> tuple[list[GPUJob], job_rows.View]:
    jobs, gpu_nodes = await asyncio.gather(list_jobs(cluster), _gpu_nodes(cluster))
    return jobs, job_rows.View(now=times.utc_now(), one_node=gpu_nodes == 1)


async def _gpu_nodes(cluster: Cluster) -> int | None:
    """How many nodes have GPUs; None where the user may not see them."""
    try:
        listing = await cluster.client.list(GPUNODES, as_type=GPUNode)
    except (Forbidden, NotFound):
        return None
    return sum(bool(node.status.devices) for node in listing.items)


def _redraw(text: str) -> None:
    """On a terminal in place of what stood there, else below it."""
    print(f"\x1b[H\x1b[2J{text}" if output.on_terminal() else f"{text}\n", flush=True)
