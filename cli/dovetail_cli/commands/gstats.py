"""`gstats`: what has run, how long it waited, and what it used."""

from typing import Annotated

from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace, Output


def gstats(
    *,
    since: Annotated[
        str, option("--since", metavar="TIME", help="Jobs that ended since then: 7d, 12h, or a date.")
    ] = "30d",
    users: Annotated[
        list[str] | None, option("-u", "--users", metavar="USERS", help="Only jobs of these users.")
    ] = None,
    names: Annotated[
        list[str] | None, option("-N", "--names", metavar="NAMES", help="Only jobs with these names.")
    ] = None,
    project: Annotated[
        list[str] | None, option("-P", "--project", metavar="NAMES", help="Only jobs of these projects.")
    ] = None,
    by: Annotated[
        str | None,
        option("--by", metavar="user|name|project|day", help="A line for each, the most GPU hours first."),
    ] = None,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Sum up a namespace's finished jobs: how they ended, their wait, and their GPU hours."""
    from dovetail.query.jobs.projects import parse_projects
    from dovetail_cli.jobs import listing, statistics
    from dovetail_cli.ui import output, times

    output.check_format(form)
    question = statistics.question(
        since=times.since_time(since, now=times.local_now(), option="--since"),
        users=listing.parse_names(users),
        names=listing.parse_names(names),
        projects=parse_projects(project, field="-P"),
        by=by,
    )
    statistics.show(question, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace)
