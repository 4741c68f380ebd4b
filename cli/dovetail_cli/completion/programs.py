"""The programs as typer completes them, for bash, zsh and fish."""

import os
import sys
from contextlib import redirect_stderr, suppress
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dovetail_cli import app

SHELLS: Final = ("bash", "zsh", "fish")


class _Programs(TyperGroup):
    """`dovetail` with all its commands, of which only the one that is typed is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ARG002 - typer's
        name, rest = app.resolved(args[0], arguments=args[1:])
        return name, get_command(app.typer_app(name)) if name in app.COMMANDS else None, rest


def complete(name: str | None, *, prog: str) -> int:
    """Print the candidates for the command line that the environment holds.

    `name` is the command, None for `dovetail` itself. Prints nothing if anything fails: a message
    would be in the way of what is typed.
    """
    _register_shells()
    with open(os.devnull, "w", encoding="utf-8") as nothing, redirect_stderr(nothing):  # noqa: PTH123 - no file
        try:
            _answer(get_command(app.typer_app(name)) if name else _programs(), prog=prog)
        except Exception:  # noqa: BLE001 - as the docstring says
            sys.stdout.flush()
    return 0


def print_script(shell: str) -> None:
    """Print the lines that a shell reads to complete all programs."""
    _register_shells()
    os.environ[app.COMPLETE_VARIABLE] = f"source_{shell}"
    for prog in ("dovetail", *app.PROGRAMS):
        _answer(_programs(), prog=prog)


def _answer(command: Any, *, prog: str) -> None:
    """Do what the variable in the environment says; typer exits after it."""
    with suppress(SystemExit):
        command.main(args=[], prog_name=prog, complete_var=app.COMPLETE_VARIABLE)


def _programs() -> _Programs:
    return _Programs(
        name="dovetail",
        commands=[TyperCommand(name, help=entry.help) for name, entry in app.COMMANDS.items() if " " not in name],
    )


def _register_shells() -> None:
    # typer knows its shells as soon as it has built any application with completion; ours are without its options.
    other = typer.Typer(add_completion=True)
    other.command()(lambda: None)
    get_command(other)
