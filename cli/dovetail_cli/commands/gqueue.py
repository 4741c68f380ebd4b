"""`gqueue`: the jobs of a namespace as Slurm's squeue shows them."""

from typing import Annotated

from dovetail_cli.ui import completers
from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace, Output


def gqueue(
    *,
    states: Annotated[
        str | None, option("-s", "--states", metavar="STATES", help="Only these, such as PD,R or running.")
    ] = None,
    jobs: Annotated[
        list[str] | None,
        option(
            "-j",
            "--jobs",
            metavar="IDS",
            help="Only these, such as 1,3, 1-5 or @ for your last one.",
            complete=completers.JOBS,
        ),
    ] = None,
    names: Annotated[
        list[str] | None, option("-N", "--names", metavar="NAMES", help="Only jobs with these names.")
    ] = None,
    users: Annotated[
        str | None, option("-u", "--users", metavar="USERS", help="Only jobs of these users; all for all.")
    ] = None,
    project: Annotated[
        list[str] | None, option("-P", "--project", metavar="NAMES", help="Only jobs of these projects.")
    ] = None,
    fields: Annotated[
        str | None,
        option(
            "-f",
            "--fields",
            metavar="FIELDS",
            help="Columns, such as JOBID,ST,PRIORITY; an unknown one lists them all.",
        ),
    ] = None,
    sort: Annotated[
        str | None, option("-r", "--sort", metavar="FIELDS", help="Order, such as PRIORITY or -TIME.")
    ] = None,
    limit: Annotated[
        str | None, option("-n", "--limit", metavar="±N", help="Only the first N, or with -N the last N.")
    ] = None,
    since: Annotated[
        str | None,
        option(
            "--since",
            metavar="TIME",
            help="Jobs that have ended since then too, also those whose objects are gone: 1d, 12h, or a date.",
        ),
    ] = None,
    everything: Annotated[bool, option("-a", "--all", help="Finished jobs too.")] = False,
    completed: Annotated[bool, option("-c", "--completed", help="Only jobs that have ended.")] = False,
    by_state: Annotated[bool, option("-g", "--group", help="A table for each state.")] = False,
    tree: Annotated[bool, option("-t", "--tree", help="Jobs below those that they wait for.")] = False,
    watch: Annotated[bool, option("-w", "--watch", help="Refresh the table until Ctrl-C.")] = False,
    interval: Annotated[
        float, option("--interval", metavar="SECONDS", help="Seconds between two refreshes with -w.")
    ] = 2.0,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List waiting and running jobs: state, run time, GPUs, and devices or the reason to wait.

    Jobs that have ended are shown with -a, -c or --since, or when -s, -j or -N asks for them.
    """
    from dovetail.query.jobs import columns, projects, selection
    from dovetail.query.jobs.states import parse_states
    from dovetail_cli.jobs import layouts, listing
    from dovetail_cli.ui import output, times

    question = listing.Question(
        states=parse_states(states, field="-s"),
        ids=selection.parse_ids(jobs, field="-j") if jobs else [],
        names=listing.parse_names(names),
        fields=columns.parse_fields(fields, field="-f"),
        sort=columns.parse_sort(sort, field="-r"),
        limit=listing.parse_limit(limit),
        everything=everything,
        completed=completed,
        users=listing.parse_users(users),
        projects=projects.parse_projects(project, field="-P"),
        by_state=by_state,
        tree=tree,
        since=None if since is None else times.since_time(since, now=times.local_now(), option="--since"),
    )
    output.check_format(form)
    layouts.check(by_state=by_state, tree=tree, form=form)
    again = listing.check_interval(interval, form=form) if watch else None
    listing.show(question, form=form, again_seconds=again, kubeconfig=kubeconfig, context=context, namespace=namespace)
