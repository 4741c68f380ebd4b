"""`dovetail audit`: prove that no device is promised beyond what it has."""

import typer

from dovetail_cli.ui.options import Context, Kubeconfig, Output


def audit(
    *,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Add up from the API server alone what all pods hold, and compare it with what there is.

    Exit code 1 if anything is promised that must not be.
    """
    from dovetail_cli.cluster import audit as proving
    from dovetail_cli.ui import output

    output.check_format(form)
    report = proving.prove(kubeconfig=kubeconfig, context=context)
    typer.echo(proving.render(report, form=form))
    if report.findings:
        raise typer.Exit(1)
