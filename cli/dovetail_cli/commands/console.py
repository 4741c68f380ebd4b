"""`dovetail console`: the live console in a browser."""

from typing import Annotated

import typer

from dovetail_cli.ui.options import Context, Kubeconfig


def console(
    *,
    gateway: Annotated[
        str | None,
        typer.Option("--gateway", metavar="URL", help="Open the console of this gateway [one on this machine]."),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", min=0, max=65535, help="Port of the console here [8088].")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the queue, each job and why it waits, live in a browser.

    Without --gateway it serves on this machine alone, with the rights of your kubeconfig, until Ctrl-C.
    """
    from dovetail.process import programs
    from dovetail_cli import consoles
    from dovetail_cli.cluster import gateway as gateways
    from dovetail_cli.ui.errors import CommandError

    if url := gateways.address(gateway, profile=None):
        consoles.open_at(url, kubeconfig=kubeconfig, context=context, browser=browser)
        return
    if said := programs.lacking("`console` without --gateway", extra="gateway"):
        raise CommandError(said)
    if why := consoles.prepare():
        raise CommandError(f"the console cannot be built: {why}")
    consoles.open_local(kubeconfig=kubeconfig, context=context, port=port, browser=browser)
