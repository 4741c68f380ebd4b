"""`ginfo`: the nodes and their devices."""

from typing import Annotated

from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace, Output


def ginfo(
    *,
    by_job: Annotated[
        bool, option("-g", "--by-job", help="A line for each job, with the devices that it holds.")
    ] = False,
    verbose: Annotated[
        bool, option("-v", "--verbose", help="Each device with its figures, also of five nodes and more.")
    ] = False,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the scheduler's state, the number of GPUs, and each device with its users.

    Of five nodes and more, show a line for each node; -v shows each device.
    """
    from dovetail_cli.nodes import inventory
    from dovetail_cli.ui import output

    output.check_format(form)
    where = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace}
    print(inventory.show(by_job=by_job, verbose=verbose, form=form, **where))
