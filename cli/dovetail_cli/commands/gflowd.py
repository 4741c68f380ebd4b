"""`gflowd`: the queue of one's own machine, up and down. It is the local sandbox `default`."""

from pathlib import Path
from typing import Annotated

import typer

from dovetail_cli import sandboxes
from dovetail_cli.commands.migrate import Infer, Train

app = typer.Typer(
    help=f"Start, show and stop the queue of this machine, the sandbox {sandboxes.DEFAULT}. A cluster needs no daemon.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
service = typer.Typer(
    help="Start the queue of this machine with your login or at boot, by systemd.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(service, name="service")


@app.command()
def up(
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Simulated nodes with GPUs: jobs are scheduled, and nothing runs.")
    ] = False,
    train: Train = None,
    infer: Infer = None,
    workdir: Annotated[
        Path | None,
        typer.Option("--workdir", metavar="FOLDER", help="Where these run, and relative paths count from [this one]."),
    ] = None,
) -> None:
    """Start the queue of this machine: jobs run as your processes.

    Prints the machine's devices. A queue that is already up stays as it is, but for what tasks of REST v2 run.
    """
    from dovetail_cli.nodes import startup_tree
    from dovetail_cli.tasks import local_templates

    tasks = local_templates.asked(train=train, infer=infer, workdir=workdir, simulated=simulated)
    sandboxes.up(sandboxes.DEFAULT, local=not simulated)
    runs = "Jobs are simulated: nothing runs." if simulated else "Jobs run on this machine, as your processes."
    print(f"The queue is up. {runs}", flush=True)
    if tasks is not None:
        local_templates.keep(
            tasks, file=sandboxes.task_templates(sandboxes.DEFAULT), kubeconfig=sandboxes.kubeconfig(sandboxes.DEFAULT)
        )
    if not simulated:
        startup_tree.show(sandboxes.kubeconfig(sandboxes.DEFAULT))
    if not sandboxes.is_meant(sandboxes.DEFAULT):
        print("But $KUBECONFIG names another cluster, which gbatch, gqueue and ginfo use.")
    sandboxes.show_console(sandboxes.DEFAULT)


@app.command()
def status() -> None:
    """Show the queue of this machine; exit code 1 unless all of it runs, 3 if there is none."""
    raise typer.Exit(sandboxes.status(sandboxes.DEFAULT))


@app.command()
def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the queue, its history and what jobs keep; their logs stay.")
    ] = False,
) -> None:
    """Stop the queue of this machine and keep it.

    Running jobs end. Waiting jobs wait on, and start after the next `gflowd up`.
    """
    sandboxes.down(sandboxes.DEFAULT, purge=purge)
    print("The queue is down.")


@service.command()
def install(
    *,
    only_print: Annotated[bool, typer.Option("--print", help="Print the unit, and install nothing.")] = False,
) -> None:
    """Write a unit of your systemd that starts the queue, and start it now.

    Needs no root. `loginctl enable-linger` lets it start at boot.
    """
    from dovetail_cli.nodes import user_service

    print(user_service.text() if only_print else user_service.install(), end="" if only_print else "\n")


@service.command()
def remove() -> None:
    """Stop the queue and remove the unit; the queue is kept."""
    from dovetail_cli.nodes import user_service

    print(user_service.remove())
