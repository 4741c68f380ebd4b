"""`dovetail move plan`: which running jobs to restart elsewhere so that a job starts."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import Context, Kubeconfig, Namespace, OutputOfOne

app = typer.Typer(
    help="Which running jobs to restart elsewhere so that a waiting job starts, with the proof that it does.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def move() -> None:
    """Which running jobs to restart elsewhere so that a job starts, with the proof."""


@app.command()
def plan(
    name: Annotated[str, typer.Argument(metavar="NAME|NUMBER", help="The job.", autocompletion=completers.JOBS)],
    *,
    form: OutputOfOne = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show which running jobs would have to restart elsewhere so that a job starts.

    Nothing is changed. Exit code 1 if no moves start it.
    """
    from dovetail_cli.explain import move_plan
    from dovetail_cli.ui import output
    from dovetail_cli.ui.options import DOCUMENTS

    output.check_format(form, allowed=DOCUMENTS)
    text, holds = move_plan.show(name, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace)
    print(text)
    if not holds:
        raise typer.Exit(1)
