"""`dovetail quota`: the limits of the cluster, and what is used of them."""

from typing import Annotated

from dovetail_cli.ui import completers
from dovetail_cli.ui.command_line import argument
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Output


def quota(
    names: Annotated[
        list[str] | None, argument(metavar="NAME", help="Only these GPUQuotas.", complete=completers.AFTER_QUOTA)
    ] = None,
    *,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what is used of each GPUQuota: GPUs, jobs, and recent GPU hours."""
    from dovetail_cli.nodes import quotas
    from dovetail_cli.ui import output

    output.check_format(form)
    print(quotas.show(frozenset(names or ()), form=form, kubeconfig=kubeconfig, context=context))
