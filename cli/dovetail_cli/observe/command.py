"""`dovetail observe`: why GPU pods of any scheduler wait, and who holds what."""

from typing import Annotated

from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace, Output


def observe(
    *,
    everything: Annotated[bool, option("--all", help="All waiting pods and nodes, not only the first 20.")] = False,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show why GPU pods of any scheduler wait, who holds which GPUs, and what is lost.

    Needs no installation and writes nothing: it lists nodes, pods and quotas, and says which of these you may not list.
    The namespace matters only where you may not list the pods of all namespaces.
    """
    from dovetail_cli.observe import look, render
    from dovetail_cli.ui import output

    output.check_format(form)
    found = look.take(kubeconfig=kubeconfig, context=context, namespace=namespace)
    render.print_unread(found)
    print(render.render(found, form=form, everything=everything))


def report(
    *,
    everything: Annotated[bool, option("--all", help="All pods, not only the 20 that gain the most.")] = False,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show which pods would have started sooner under Dovetail's queue and engine.

    Replays the pods that the cluster still has, first in the order of their own scheduler: the forecast is worth as
    much as that replay meets their starts. Reads nodes and pods, and writes nothing.
    """
    from dovetail_cli.observe import look, render_report
    from dovetail_cli.ui import output

    output.check_format(form)
    found = look.forecast_of(kubeconfig=kubeconfig, context=context)
    print(render_report.render(found, form=form, everything=everything))
