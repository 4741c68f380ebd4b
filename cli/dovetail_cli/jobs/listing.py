"""Lists of jobs: reads them, and prints those that the query means."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from dovetail.answers.jobs import job_row
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.historyquery import HistoryQuerySpec
from dovetail.api.resources import GPUNODES
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.jobs.columns import DEFAULT_FIELDS, View
from dovetail.query.jobs.filters import JobQuery, choose
from dovetail.query.jobs.records import joined
from dovetail_cli.cluster import identity, this_machine
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.jobs import history, job_rows, layouts
from dovetail_cli.submit.profiles import console_page
from dovetail_cli.ui import live_screen, output, times
from dovetail_cli.ui.errors import UsageError

_SHORTEST_SECONDS: Final = 0.1
_NOTHING: Final = "{where} no such job now. `gqueue -a` shows those that have ended too, and `gbatch` submits one."
# The columns by which a person means a job lead to its page in the console.
_LINKED: Final = ("JOBID", "NAME")


class Question(JobQuery, frozen=True, kw_only=True):
    """The query of a list command, and how its answer is shown.

    fields    the columns
    by_state  one table for each state
    tree      one table with jobs below those that they wait for
    """

    fields: Sequence[str] = DEFAULT_FIELDS
    by_state: bool = False
    tree: bool = False

    def answer(
        self,
        jobs: Sequence[GPUJob],
        *,
        view: View,
        form: str,
        page_of: Callable[[GPUJob], str | None] = lambda _: None,
    ) -> str:
        """The text to print. `page_of` has the address of a job's page, for links on a terminal."""
        chosen = choose(jobs, query=self, view=view)
        if form in {"json", "yaml"}:
            rows = [msgspec.to_builtins(job_row(job)) for job in chosen]
            return output.render(rows, columns=(), form=form)
        if self.by_state or self.tree:
            arrange = layouts.by_state if self.by_state else layouts.tree
            return arrange(chosen, self.fields, view=view)
        rows = [job_rows.row(job, fields=self.fields, view=view) for job in chosen]
        pages = [page_of(job) for job in chosen] if output.in_colour() else []
        links = {
            field: {str(row[field]): url for row, url in zip(rows, pages, strict=True) if url}
            for field in _LINKED
            if pages and field in self.fields
        }
        return output.render(rows, columns=self.fields, form=form, colours=job_rows.COLOURS, links=links)


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
    """Check the seconds between two refreshes.

    Raises `UsageError` if they are too few, or `form` is no table.
    """
    if form != "table":
        raise UsageError(f"-w refreshes a table: it cannot be combined with -o {form}")
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

    async def read(cluster: Cluster) -> str:
        jobs, view = await _look(cluster)
        ids = await identity.of_caller(question.ids, cluster=cluster)
        if question.since is not None:
            past = await history.records(cluster, question=HistoryQuerySpec(since=question.since))
            jobs = joined(jobs, records=past)
        if form == "table":
            jobs = [this_machine.job(cluster, job=job) for job in jobs]
        return msgspec.structs.replace(question, ids=ids).answer(
            jobs, view=view, form=form, page_of=lambda job: console_page.page_of(cluster, job=job)
        )

    async def go(cluster: Cluster) -> None:
        if again_seconds is None:
            text = await read(cluster)
            print(text)
            if form == "table" and "\n" not in text and output.on_terminal():
                print(output.wrapped(_NOTHING.format(where=_where(cluster))), file=sys.stderr)
        else:
            await _watch(partial(read, cluster), interval_seconds=again_seconds)

    try:
        work(go, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    except KeyboardInterrupt:
        # The way to end a watch; everywhere else it is an interruption.
        if again_seconds is None:
            raise


def _where(cluster: Cluster) -> str:
    return "This machine has" if this_machine.is_one(cluster) else f"Namespace {cluster.namespace} has"


async def _look(cluster: Cluster) -> tuple[list[GPUJob], View]:
    jobs, gpu_nodes = await asyncio.gather(list_jobs(cluster), _gpu_nodes(cluster))
    return jobs, View(now=times.utc_now(), one_node=gpu_nodes == 1)


async def _gpu_nodes(cluster: Cluster) -> int | None:
    """How many nodes have GPUs; None where the user may not see them."""
    try:
        listing = await cluster.client.list(GPUNODES, as_type=GPUNode)
    except (Forbidden, NotFound):
        return None
    return sum(bool(node.status.devices) for node in listing.items)


async def _watch(read: Callable[[], Awaitable[str]], *, interval_seconds: float) -> None:
    """Draw the table in place on a terminal; elsewhere print each table below the one before."""
    if output.on_terminal():
        look = live_screen.Look(read=read, lines=_cropped)
        await live_screen.show(look, first=await read(), interval_seconds=interval_seconds)
    while True:
        print(await read(), end="\n\n", flush=True)
        await asyncio.sleep(interval_seconds)


def _cropped(seen: str, *, height: int, width: int) -> list[str]:  # noqa: ARG001 - the terminal crops long lines
    return live_screen.cropped(seen.split("\n"), height=height)
