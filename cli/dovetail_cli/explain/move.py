"""`dovetail move`: which running jobs to restart elsewhere so that a job starts."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import Context, Kubeconfig, Namespace, OutputOfOne

app = typer.Typer(
    help="Which running jobs to restart elsewhere so that a waiting job starts, with the proof; and their restart.",
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


@app.command()
def apply(
    name: Annotated[str, typer.Argument(metavar="NAME|NUMBER", help="The job.", autocompletion=completers.JOBS)],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the start of the job.")
    ] = 600.0,
    form: OutputOfOne = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Restart running jobs elsewhere so that a job starts, and wait until it runs.

    Only jobs move that may (spec.moves, or the configuration). Exit code 1 if no moves start it, 124 after the timeout.
    """
    from dovetail_cli.explain import move_apply
    from dovetail_cli.ui import output
    from dovetail_cli.ui.options import DOCUMENTS

    output.check_format(form, allowed=DOCUMENTS)
    code = move_apply.apply(
        name,
        yes=yes,
        timeout_seconds=timeout,
        form=form,
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
    )
    if code:
        raise typer.Exit(code)
