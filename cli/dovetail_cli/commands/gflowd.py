"""`gflowd`: for scripts that begin by starting the daemon of a queue. Here that is the local sandbox."""

import typer

from dovetail_cli import sandboxes

app = typer.Typer(
    help=f"Start, show and stop the local sandbox ({sandboxes.DEFAULT}). A real cluster needs no daemon of yours.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def up() -> None:
    """Start the local sandbox; one that is up stays as it is."""
    sandboxes.up(sandboxes.DEFAULT)
    if sandboxes.is_meant(sandboxes.DEFAULT):
        print("There is no daemon to start: the local sandbox is up, and gbatch, gqueue and ginfo use it.")
    else:
        print(
            "There is no daemon to start: the local sandbox is up, but $KUBECONFIG names another cluster, "
            "which gbatch, gqueue and ginfo use."
        )


@app.command()
def status() -> None:
    """Show the local sandbox; exit code 1 unless all of it runs."""
    raise typer.Exit(sandboxes.status(sandboxes.DEFAULT))


@app.command()
def down() -> None:
    """Stop the local sandbox, with every job in it."""
    sandboxes.down(sandboxes.DEFAULT)
    print("The local sandbox is down.")
