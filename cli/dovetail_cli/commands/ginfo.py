"""`ginfo`: the nodes and their devices."""

from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace, Output


def ginfo(
    *,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the scheduler's state, the number of GPUs, and each device with its users."""
    from dovetail_cli.nodes import inventory
    from dovetail_cli.ui import output

    output.check_format(form)
    print(inventory.show(form=form, kubeconfig=kubeconfig, context=context, namespace=namespace))
