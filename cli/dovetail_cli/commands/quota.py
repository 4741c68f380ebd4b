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
    """Show what is used of each GPUQuota, and in a tree what is guaranteed, lent and borrowed."""
    from dovetail_cli.nodes import quotas
    from dovetail_cli.ui import output

    output.check_format(form)
    print(quotas.show(frozenset(names or ()), form=form, kubeconfig=kubeconfig, context=context))


def plan(
    file: Annotated[str, argument(metavar="FILE", help="GPUQuotas in YAML or JSON, as for kubectl apply.")],
    *,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what the GPUQuotas of a file would do now, without writing anything.

    That is: guarantees, contradictions, and the jobs that would start or end. Exit code 1 if the quotas contradict each
    other.
    """
    from dovetail_cli.nodes import quota_plan
    from dovetail_cli.ui import output

    output.check_format(form)
    text, is_refused = quota_plan.show(file, form=form, kubeconfig=kubeconfig, context=context)
    print(text)
    if is_refused:
        # Not typer's Exit: plain arguments are read without typer.
        raise SystemExit(1)
