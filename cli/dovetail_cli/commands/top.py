"""`dovetail top`: what the devices do now, and who holds them."""

from typing import Annotated

from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace, Output


def top(
    *,
    interval: Annotated[float, option("--interval", metavar="SECONDS", help="Seconds between two refreshes.")] = 2.0,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show each device with its load, memory and holders, refreshed until Ctrl-C.

    Shows them once if the output is no terminal, and with -o json, yaml or csv.
    """
    from dovetail_cli.jobs import listing
    from dovetail_cli.nodes import top as topping
    from dovetail_cli.ui import output

    output.check_format(form)
    listing.check_interval(interval, form="table")
    topping.show(interval=interval, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace)
