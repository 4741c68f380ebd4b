"""`dovetail cordon` and `dovetail uncordon`: single devices out of use, and back."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import Context, Kubeconfig, Output

Devices = Annotated[
    list[str],
    typer.Argument(
        metavar="DEVICES",
        help="Such as node-1:2, node-1:0,2, node-1:0-3, node-1:all, node-1:GPU-… or GPU-….",
        autocompletion=completers.DEVICES,
    ),
]


def cordon(devices: Devices, *, form: Output = "table", kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Take devices out of use: they get no new work, and what runs there continues.

    Idempotent.
    """
    _do(devices, cordoned=True, form=form, kubeconfig=kubeconfig, context=context)


def uncordon(
    devices: Devices,
    *,
    mended: Annotated[
        bool, typer.Option("--mended", help="They were repaired: faults that were seen before now count no more.")
    ] = False,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Bring cordoned devices back into use.

    An unhealthy device still takes no work.
    """
    _do(devices, cordoned=False, mended=mended, form=form, kubeconfig=kubeconfig, context=context)


def _do(
    devices: list[str], *, cordoned: bool, form: str, kubeconfig: str | None, context: str | None, mended: bool = False
) -> None:
    from dovetail_cli.cluster.connection import work
    from dovetail_cli.nodes import cordon as cordoning
    from dovetail_cli.ui import output

    output.check_format(form)
    wish = cordoning.Wish(cordoned=cordoned, mended=mended)
    rows = work(
        lambda cluster: cordoning.cordon(cluster, words=devices, wish=wish), kubeconfig=kubeconfig, context=context
    )
    if form == "table":
        typer.echo("\n".join(cordoning.sentence(row, mended=mended) for row in rows))
    else:
        typer.echo(output.render(rows, columns=cordoning.COLUMNS, form=form))
