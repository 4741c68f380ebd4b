"""`dovetail whoami|completion|uninstall`: the machine that the commands are on."""

from typing import Annotated

import typer

from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.options import Context, Kubeconfig, Namespace, Output


def whoami(
    *,
    namespace: Namespace = None,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show which cluster commands and Python programs use, and as whom.

    Commands talk to the API server. `dovetail.sdk` talks to a gateway: that of DOVETAIL_GATEWAY, or of the kubeconfig.
    """
    from dovetail_cli.cluster import identity
    from dovetail_cli.ui import output

    output.check_format(form)
    print(identity.show(form=form, kubeconfig=kubeconfig, context=context, namespace=namespace))


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the lines by which a shell completes these commands."""
    from dovetail_cli.completion import programs

    if shell not in programs.SHELLS:
        raise UsageError(f'SHELL "{shell}": unknown shell, allowed are {", ".join(programs.SHELLS)}')
    programs.print_script(shell)


def uninstall(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would go; remove nothing.")] = False,
    keep_logs: Annotated[bool, typer.Option("--keep-logs", help="Keep the logs of jobs.")] = False,
) -> None:
    """Remove what Dovetail has left on this machine: queue, sandboxes, logs, programs, profiles.

    Running jobs of this machine end. It says what stays. A cluster is not touched.
    """
    from dovetail_cli.nodes import uninstalling
    from dovetail_cli.slurm import names

    uninstalling.uninstall(yes=yes, dry_run=dry_run, keep_logs=keep_logs, links=names.on_path())
