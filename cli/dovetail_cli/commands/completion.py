"""`dovetail completion`: the lines by which a shell completes these commands."""

from typing import Annotated

import typer

from dovetail_cli.ui.errors import UsageError


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the lines by which a shell completes these commands."""
    from dovetail_cli.completion import programs

    if shell not in programs.SHELLS:
        raise UsageError(f'SHELL "{shell}": unknown shell, allowed are {", ".join(programs.SHELLS)}')
    programs.print_script(shell)
