"""`dovetail move`: which running jobs to restart elsewhere so that waiting jobs start."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import Context, Kubeconfig, Namespace, OutputOfOne

Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOBS",
        help="Numbers, ranges and names of waiting jobs, such as 7, 1,3 or 1-5; @ is your last job.",
        autocompletion=completers.UNFINISHED_JOBS,
    ),
]
app = typer.Typer(
    help="Which running jobs to restart elsewhere so that waiting jobs start, with the proof; and their restart.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def move() -> None:
    """Which running jobs to restart elsewhere so that waiting jobs start, with the proof."""


@app.command()
def plan(
    jobs: Jobs,
    *,
    form: OutputOfOne = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show which running jobs would have to restart elsewhere so that waiting jobs start.

    The plans for several jobs hold together. Nothing is changed. Exit code 1 if no moves start one of them.
    """
    from dovetail_cli.explain import move_plan
    from dovetail_cli.ui import output
    from dovetail_cli.ui.options import DOCUMENTS

    output.check_format(form, allowed=DOCUMENTS)
    text, holds = move_plan.show(jobs, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace)
    print(text)
    if not holds:
        raise typer.Exit(1)


@app.command()
def apply(
    jobs: Jobs,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the starts.")
    ] = 600.0,
    form: OutputOfOne = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Restart running jobs elsewhere so that waiting jobs start, and wait until these run.

    Only jobs move that may (spec.moves, or the configuration). What has no plan is shown and left as it is. Exit code 1
    if one of the jobs has none or ends without a start, 124 after the timeout.
    """
    from dovetail_cli.explain import move_apply
    from dovetail_cli.ui import output
    from dovetail_cli.ui.options import DOCUMENTS

    output.check_format(form, allowed=DOCUMENTS)
    code = move_apply.apply(
        jobs,
        yes=yes,
        timeout_seconds=timeout,
        form=form,
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
    )
    if code:
        raise typer.Exit(code)
