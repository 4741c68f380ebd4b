"""`dovetail top`: print the devices once, or redraw them on a terminal."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from dovetail.api.gpujob import GPUJob
from dovetail.kube.errors import Forbidden
from dovetail_cli.cluster.connection import Cluster, read_jobs, work
from dovetail_cli.nodes import inventory, top_screen
from dovetail_cli.nodes.top_screen import Screen
from dovetail_cli.ui import live_screen, output
from dovetail_cli.ui.times import utc_now

if TYPE_CHECKING:
    from rich.text import Text


def show(*, interval: float, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
    """Print the devices once, or redraw them every `interval` seconds on a terminal."""
    if form != "table" or not output.on_terminal():
        screen = work(read_screen, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
        inventory.print_missing(screen.inventory)
        print(_rendered(screen, form=form))
        return

    async def go(cluster: Cluster) -> None:
        screen = await read_screen(cluster)
        inventory.print_missing(screen.inventory)
        look = live_screen.Look(read=partial(read_screen, cluster), lines=_lines, paint=_paint)
        await live_screen.show(look, first=screen, interval_seconds=interval)

    try:
        work(go, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    except KeyboardInterrupt:
        # The way to end it.
        return


def _rendered(screen: Screen, *, form: str) -> str:
    match form:
        case "json":
            return output.as_json(screen.record())
        case "yaml":
            return output.as_yaml(screen.record())
        case "csv":
            return output.as_csv(screen.rows(), columns=top_screen.CSV_COLUMNS)
        case _:
            return "\n".join(screen.lines())


async def read_screen(cluster: Cluster) -> Screen:
    """The devices and the jobs as they are now."""
    found, jobs = await asyncio.gather(inventory.read_inventory(cluster), _jobs(cluster))
    return Screen(now=utc_now(), inventory=found, jobs=jobs, called=top_screen.called(jobs))


async def _jobs(cluster: Cluster) -> list[GPUJob]:
    """The jobs of all namespaces, or of the reader's own where that is all that may be seen."""
    try:
        return await read_jobs(cluster)
    except Forbidden:
        return await read_jobs(cluster, namespace=cluster.namespace)


def _lines(seen: Screen, *, height: int, width: int) -> list[str]:
    return seen.lines(height=height, width=width)


def _paint(text: "Text") -> None:
    lines = text.plain.split("\n")
    for at in (0, 2):
        begin = sum(len(line) + 1 for line in lines[:at])
        text.stylize("bold", begin, begin + len(lines[at]) if at < len(lines) else begin)
    text.highlight_regex("█+", "green")
    text.highlight_regex(r"Unavailable: .*$|unmanaged$", "red")
