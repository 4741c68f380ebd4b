"""`dovetail demo`: a control plane with simulated GPUs, and a mix of jobs on it."""

from typing import Annotated

import typer


def demo(
    *,
    count: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, max=1000, help="How many jobs of the mix to submit.")
    ] = 60,
    down: Annotated[bool, typer.Option("--down", help="End the demo: no process and no file of it stays.")] = False,
) -> None:
    """Start the default sandbox, submit jobs of a real trace, and watch them get devices.

    The sandbox stays up, to be looked at with kubectl, gqueue and ginfo, until `dovetail demo --down`.
    """
    from dovetail_cli import sandboxes
    from dovetail_cli.demo import live_view

    if down:
        sandboxes.down(sandboxes.DEFAULT)
        return
    sandboxes.up(sandboxes.DEFAULT)
    shown = live_view.show(count=count, kubeconfig=str(sandboxes.kubeconfig(sandboxes.DEFAULT)))
    typer.echo(shown.text)
    sandboxes.show_console(sandboxes.DEFAULT)
    if not shown.good:
        raise typer.Exit(1)
