"""`dovetail limits`: the part of the configuration that counts without a restart."""

from typing import Annotated

from dovetail_cli.ui import completers
from dovetail_cli.ui.command_line import argument
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Output


def limits(
    keys: Annotated[
        list[str] | None, argument(metavar="KEY", help="Only these keys.", complete=completers.AFTER_LIMITS)
    ] = None,
    *,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the policy and the limits that `dovetail limits set` changes without a restart.

    A device with limits of its own has a row of its own. `dovetail quota` shows the limits of namespaces and users.
    """
    from dovetail_cli.ui import output

    output.check_format(form)
    # Reads the configuration's types, which takes longer than to refuse a format.
    from dovetail_cli.nodes import limits as live

    print(live.show(keys or (), form=form, kubeconfig=kubeconfig, context=context))
