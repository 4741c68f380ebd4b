"""`dovetail snapshot`: the cluster as it is now, in a file that `dovetail simulate` reads."""

from typing import Annotated

import typer

from dovetail_cli.ui.options import Context, Kubeconfig


def snapshot(
    *,
    file: Annotated[
        str | None,
        typer.Option("-f", "--file", metavar="FILE", help="Write to this file, .json or .yaml [standard output]."),
    ] = None,
    form: Annotated[str | None, typer.Option("-o", "--output", metavar="FORMAT", help="json or yaml [json].")] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Hash the names of nodes, namespaces, jobs, pods and devices.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write nodes, devices, promises and jobs; no commands, environments or images.

    `dovetail simulate --snapshot FILE` runs it under several policies.
    """
    from dovetail_cli.simulation import snapshot as snapshotting

    path = snapshotting.check_file(file)
    form = snapshotting.check_form(form, file=path)
    taken = snapshotting.take(kubeconfig=kubeconfig, context=context, anonymous=anonymous)
    snapshotting.write(taken, form=form, path=path)
