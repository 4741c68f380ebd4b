"""`dovetail top`: print the devices once, or redraw them on a terminal."""

import asyncio
from typing import TYPE_CHECKING

from dovetail.api.gpujob import GPUJob
from dovetail.kube.errors import Forbidden, Unreachable
from dovetail_cli.cluster.connection import Cluster, read_jobs, work
from dovetail_cli.nodes import inventory, top_screen
from dovetail_cli.nodes.top_screen import Screen
from dovetail_cli.ui import output
from dovetail_cli.ui.times import utc_now

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def show(*, interval: float, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
    """Print the devices once, or redraw them every `interval` seconds on a terminal."""
    if form != "table" or not output.on_terminal():
        screen = work(read_screen, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
        inventory.print_missing(screen.inventory)
        print(_rendered(screen, form=form))
        return

    async def go(cluster: Cluster) -> None:
        await _draw(cluster, interval=interval)

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


async def _draw(cluster: Cluster, *, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    screen = await read_screen(cluster)
    inventory.print_missing(screen.inventory)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        trouble = ""
        while True:
            live.update(_frame(screen, console=console, trouble=trouble), refresh=True)
            await asyncio.sleep(interval)
            try:
                screen, trouble = await read_screen(cluster), ""
            except Unreachable as error:
                # What was seen last stays, and says how old it is.
                trouble = f"no answer since {screen.now:%H:%M:%S}: {error}"


def _frame(screen: Screen, *, console: "Console", trouble: str) -> "RenderableType":
    from rich.text import Text

    width, height = console.size
    lines = screen.lines(height=height, width=width)
    text = Text(no_wrap=True, overflow="crop")
    for at, line in enumerate([*lines, trouble] if trouble else lines):
        text.append(f"{line}\n", style="bold" if at in {0, 2} else "")
    text.rstrip()
    text.highlight_regex("█+", "green")
    text.highlight_regex(r"unhealthy.*$|unmanaged$|no answer since.*", "red")
    return text
