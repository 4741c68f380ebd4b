"""`gcancel`: end jobs for good."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import Context, Kubeconfig, Namespace


def gcancel(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="IDS",
            help="Numbers, ranges and names, such as 7, 1,3, 1-5 or train; @ is your last job.",
            autocompletion=completers.UNFINISHED_JOBS,
        ),
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which jobs would be cancelled.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Cancel jobs: waiting jobs never start, running jobs end.

    Jobs that have ended stay as they are.
    """
    from dovetail.query.jobs import selection
    from dovetail_cli.jobs import cancel

    wanted = selection.parse_ids(ids, field="gcancel")
    cancel.cancel(wanted, dry_run=dry_run, kubeconfig=kubeconfig, context=context, namespace=namespace)
