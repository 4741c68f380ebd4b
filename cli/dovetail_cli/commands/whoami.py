"""`dovetail whoami`: which cluster commands and Python programs use, and as whom."""

from dovetail_cli.ui.options import Context, Kubeconfig, Namespace, Output


def whoami(
    *,
    namespace: Namespace = None,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show which cluster commands and Python programs use, and as whom.

    Commands talk to the API server. `dovetail.sdk` talks to a gateway: that of DOVETAIL_GATEWAY, or of the kubeconfig.
    """
    from dovetail_cli.cluster import identity
    from dovetail_cli.ui import output

    output.check_format(form)
    print(identity.show(form=form, kubeconfig=kubeconfig, context=context, namespace=namespace))
