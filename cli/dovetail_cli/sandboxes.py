"""Sandboxes as commands use them: through the very command line that people have."""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dovetail.kube.auth.connection import default_kubeconfigs
from dovetail_cli.ui.errors import CommandError

DEFAULT: Final = "default"


def kubeconfig(name: str) -> Path:
    """The kubeconfig of the sandbox of that name; it exists while the sandbox does."""
    folder = default_kubeconfigs()[0].parent
    return folder.with_name(name) / "kubeconfig"


def task_templates(name: str) -> Path:
    """The file that says what v2's tasks run in the sandbox of that name."""
    return kubeconfig(name).with_name("task_templates.yaml")


def up(name: str, *, local: bool = False, nodes: str | None = None, limit_nodes: int | None = None) -> None:
    """Start a sandbox, or keep a running one. With `local`, it runs jobs on this machine.

    Raises `CommandError` if it does not start.
    """
    arguments = ["up", "--name", name]
    if local:
        arguments.append("--local")
    if nodes is not None:
        arguments += ["--nodes", nodes]
    if limit_nodes is not None:
        arguments += ["--limit-nodes", str(limit_nodes)]
    _sandbox(arguments, failed=f"the sandbox {name} did not come up")


def down(name: str, *, purge: bool = False) -> None:
    """End a sandbox: no process and no file of it stays.

    A local node's queue stays, unless `purge`. Raises `CommandError`.
    """
    _sandbox(["down", "--name", name, *(["--purge"] if purge else [])], failed=f"the sandbox {name} did not end")


def status(name: str) -> int:
    """Print what a sandbox is and does; the exit code, 0 where all of it runs."""
    from dovetail_cli import app

    return app.run("sandbox", arguments=["status", "--name", name], prog="dovetail sandbox")


def show_console(name: str) -> None:
    """Print the address of the sandbox's console and a code, or why there is none.

    The sandbox is of use without it, so nothing is raised.
    """
    from dovetail_cli import app, consoles

    if why := consoles.prepare():
        print(f"The console cannot be built: {why}", file=sys.stderr)
        return
    print("The console shows why a job waits (`dovetail sandbox console` prints a new code):", flush=True)
    app.run("sandbox", arguments=["console", "--name", name], prog="dovetail sandbox")


def is_meant(name: str, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether commands use this sandbox by default, once it is up."""
    listed = environ.get("KUBECONFIG")
    if not listed:
        return name == DEFAULT
    return Path(listed.split(os.pathsep)[0]).resolve() == kubeconfig(name).resolve()


def _sandbox(arguments: list[str], *, failed: str) -> None:
    # Imported late: the application imports the commands, and they use this.
    from dovetail_cli import app

    # Standard output is for the command's own result.
    with contextlib.redirect_stdout(sys.stderr):
        code = app.run("sandbox", arguments=arguments, prog="dovetail sandbox")
    if code != 0:
        raise CommandError(failed)
