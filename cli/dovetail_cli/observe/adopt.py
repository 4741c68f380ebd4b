"""`dovetail adopt`: step by step, what changes when a node moves to Dovetail."""

from typing import Annotated

import typer

from dovetail_cli.ui.options import Context, Kubeconfig, Output


def adopt(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that would move.")],
    *,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show step by step what changes when a node moves to Dovetail, and how far it is.

    Changes nothing: it prints the command of each step, and says which steps are done. Type it again after each.
    """
    from dovetail_cli.observe import look, render_steps
    from dovetail_cli.ui import output

    output.check_format(form)
    found = look.adoption_of(node, kubeconfig=kubeconfig, context=context)
    typer.echo(render_steps.render(found, form=form))
