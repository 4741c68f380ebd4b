"""`dovetail audit`: prove that no device is promised beyond what it has."""

from typing import Annotated

import typer

from dovetail_cli.ui.options import Context, Kubeconfig, Output


def audit(
    *,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="SPAN",
            help="Report what may still put itself right only once it has lasted this long, such as 30s or 5m.",
        ),
    ] = "60s",
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Add up from the API server alone what all pods hold, and compare it with what there is.

    Exit code 1 if anything is promised that must not be.
    """
    from dovetail_cli.cluster import audit as proving
    from dovetail_cli.ui import output
    from dovetail_cli.ui.times import span_seconds

    seconds = span_seconds(older_than, option="--older-than")
    output.check_format(form)
    report = proving.prove(kubeconfig=kubeconfig, context=context, older_than_seconds=seconds)
    typer.echo(proving.render(report, form=form))
    if report.findings:
        raise typer.Exit(1)
