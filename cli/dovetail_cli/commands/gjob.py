"""`gjob`: one job, or a few: what it is, what it prints, and what may be changed about it."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import DOCUMENTS, Context, Kubeconfig, Namespace, OutputOfOne

app = typer.Typer(
    help="One job: show it, its events and its log, wait for it, hold, release, change, renew, repeat or enter it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Job = Annotated[
    str, typer.Argument(metavar="JOB", help="Number or name; @ is your last job.", autocompletion=completers.JOBS)
]
Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOBS",
        help="Numbers, ranges and names, such as 7, 1,3 or 1-5; @ is your last job.",
        autocompletion=completers.UNFINISHED_JOBS,
    ),
]
Worker = Annotated[int, typer.Option("--worker", metavar="N", help="Which worker, from 0.", min=0)]


@app.command()
def show(
    job: Job,
    *,
    form: OutputOfOne = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Everything about a job, also of one whose object is gone."""
    from dovetail_cli.jobs import details
    from dovetail_cli.ui import output

    output.check_format(form, allowed=DOCUMENTS)
    print(details.show(job, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace))


@app.command()
def events(
    job: Job,
    *,
    form: OutputOfOne = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What has happened to a job, the oldest first."""
    from dovetail_cli.jobs import details
    from dovetail_cli.ui import output

    output.check_format(form, allowed=DOCUMENTS)
    print(details.happened(job, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace))


@app.command()
def log(
    job: Job,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends, over restarts.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", help="Only the last N lines of each worker.", min=0)
    ] = None,
    worker: Annotated[
        int | None, typer.Option("--worker", metavar="N", help="Only this worker, from 0 [all].", min=0)
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what the workers have printed, each line with its worker where there are several.

    If the job's pods are gone, show the last lines, which the history keeps.
    """
    from dovetail_cli.jobs import logs

    logs.show(job, follow=follow, tail=tail, worker=worker, kubeconfig=kubeconfig, context=context, namespace=namespace)


@app.command()
def wait(
    jobs: Jobs,
    *,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="Stop waiting after that time, with exit code 124."),
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Wait until jobs have ended; the exit code is the job's own, 0 if all succeeded."""
    from dovetail_cli.jobs import wait as waiting

    code = waiting.wait(jobs, timeout_seconds=timeout, kubeconfig=kubeconfig, context=context, namespace=namespace)
    if code:
        raise typer.Exit(code)


@app.command()
def hold(jobs: Jobs, *, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Hold jobs: what waits does not start, what runs is stopped and waits."""
    from dovetail_cli.jobs import update as changing

    changing.change(
        jobs, fields={"suspend": True}, done="held", kubeconfig=kubeconfig, context=context, namespace=namespace
    )


@app.command()
def release(
    jobs: Jobs,
    *,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Not before HH:MM, a date, or now+10m.")
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let jobs go that are held."""
    from dovetail_cli.jobs import update as changing

    wanted = changing.released(at)
    changing.change(jobs, fields=wanted, done="released", kubeconfig=kubeconfig, context=context, namespace=namespace)


@app.command()
def update(
    jobs: Jobs,
    *,
    priority: Annotated[
        int | None, typer.Option("-p", "--priority", metavar="0-255", help="Higher goes first.", min=0, max=255)
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("-t", "--time", metavar="T", help="Time limit: HH:MM:SS, minutes, such as 2h, or none."),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Not before HH:MM, a date, or now+10m; or none.")
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option("--max-retries", metavar="N", help="How many times a failed run is tried again.", min=0),
    ] = None,
    max_concurrent: Annotated[
        int | None,
        typer.Option(
            "--max-concurrent",
            metavar="N",
            help="At most N tasks of an array, or jobs of the group, at a time.",
            min=1,
            max=100_000,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Jobs that --max-concurrent counts together; or none."),
    ] = None,
    moves: Annotated[
        str | None,
        typer.Option(
            "--moves", metavar="WHAT", help="Whether it may restart elsewhere for others: Never, Restart, none."
        ),
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Change jobs that have not ended. What changes in an array or a sweep changes in its tasks."""
    from dovetail_cli.jobs import update as changing

    wanted = changing.updated(
        priority=priority,
        time=time,
        begin=begin,
        max_retries=max_retries,
        max_concurrent=max_concurrent,
        group=group,
        moves=moves,
    )
    changing.change(jobs, fields=wanted, done="updated", kubeconfig=kubeconfig, context=context, namespace=namespace)


@app.command()
def resize(
    job: Job,
    *,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Request as much as before again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Request only what a job was measured to need, from its next start on."""
    from dovetail_cli.jobs import update as changing

    print(
        changing.resize(
            job, withdraw=withdraw, dry_run=dry_run, kubeconfig=kubeconfig, context=context, namespace=namespace
        )
    )


@app.command()
def renew(
    job: Job,
    *,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="How long from now on, such as 2h [as before].")
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Extend a reservation: its time counts from now."""
    from dovetail_cli.jobs import renew_lease

    print(renew_lease.renew(job, lasting=lasting, kubeconfig=kubeconfig, context=context, namespace=namespace))


@app.command()
def redo(job: Job, *, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Submit a job once more, as a new one."""
    from dovetail_cli.jobs import resubmit

    print(resubmit.redo(job, kubeconfig=kubeconfig, context=context, namespace=namespace))


@app.command()
def fetch(
    job: Job,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="File or folder, relative to the job's working directory.")
    ] = ".",
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="Folder for the files [job-NUMBER].")] = None,
    worker: Worker = 0,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Copy files of a job to this machine, such as: gjob fetch 7 results.

    While the job runs they come from its container, afterwards from the volume of its working directory.
    """
    from dovetail_cli.jobs import fetch as fetching

    print(
        fetching.fetch(
            job, path=path, to=to, worker=worker, kubeconfig=kubeconfig, context=context, namespace=namespace
        )
    )


@app.command(context_settings={"allow_interspersed_args": False})
def attach(
    job: Job,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What to run there; a shell by default.")
    ] = None,
    *,
    port: Annotated[
        str | None,
        typer.Option("--port", metavar="[LOCAL:]PORT", help="Make this port of the container one of this machine."),
    ] = None,
    worker: Worker = 0,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Go into the container of a worker that runs, or reach its port: gjob attach --port 8888 7."""
    from dovetail_cli.jobs import attach as attaching

    attaching.attach(
        job,
        command=command or [],
        port=port,
        worker=worker,
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
    )
