"""`dovetail doctor`: what is wrong, and how to fix it."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail_cli.ui.options import Context, Kubeconfig, Output


def doctor(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Check only this node, and what the chart installs.")
    ] = None,
    *,
    host: Annotated[
        bool, typer.Option("--host", help="Look at the machine that this runs on, and at no cluster: run it on a node.")
    ] = False,
    root: Annotated[
        Path, typer.Option("--root", metavar="FOLDER", help="With --host: where the machine's files are mounted.")
    ] = Path("/"),
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Look for what keeps GPUs from being given and used as promised, and say how to fix it.

    Changes nothing. What you may not look at is said, and hides nothing else. Exit code 1 where something is wrong.
    """
    from dovetail_cli.doctor import diagnosis, findings
    from dovetail_cli.ui import output

    output.check_format(form)
    found = diagnosis.machine(root) if host else diagnosis.cluster(node=node, kubeconfig=kubeconfig, context=context)
    typer.echo(findings.render(found, form=form))
    if findings.exit_code(found):
        raise typer.Exit(1)
