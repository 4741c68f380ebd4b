"""What Dovetail leaves on a machine apart from the installed package, and its removal."""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from dovetail.kube.auth.connection import default_kubeconfigs
from dovetail_cli import sandboxes
from dovetail_cli.nodes import user_service
from dovetail_cli.submit.profiles import user_file
from dovetail_cli.ui.errors import CommandError

_STAYS: Final = (
    "What stays: the package, which `pip uninstall dovetail-gpu` or `pipx uninstall dovetail-gpu` removes, what your "
    "jobs have written into your own folders, and your kubeconfigs."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Something on this machine: where it is, what it is, and how it goes."""

    path: Path
    what: str
    remove: Callable[[], None]


def traces(*, keep_logs: bool) -> list[Trace]:
    """All that is there now, in the order in which it can go; without logs if they are to stay."""
    unit, folder = user_service.path(), default_kubeconfigs()[0].parent.parent
    found = [Trace(path=unit, what="the unit that starts the queue", remove=lambda: print(user_service.remove()))]
    names = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    found += [
        Trace(
            path=folder / name,
            what=f"the {'queue' if name == sandboxes.DEFAULT else f'sandbox {name}'}",
            remove=_down(name),
        )
        for name in names
    ]
    data, cache = _home("XDG_DATA_HOME", ".local", "share"), _home("XDG_CACHE_HOME", ".cache")
    if not keep_logs:
        logs = [path for path in data.glob("gflow*") if path.name == "gflow" or path.name.startswith("gflow-")]
        found += [_folder(path, what="logs and output of jobs") for path in sorted(logs)]
    found += [
        _folder(cache / "dovetail", what="programs of the control plane, completions"),
        _folder(user_file.location().parent, what="your profiles"),
        _folder(folder.parent, what="the folder of sandboxes"),
    ]
    return [each for each in found if os.path.lexists(each.path)]


def uninstall(*, yes: bool, dry_run: bool, keep_logs: bool, links: Sequence[Path] = ()) -> None:
    """Show what is there, `links` to the commands among it, ask, and remove it.

    Raises `CommandError` for what cannot be removed.
    """
    found = [*traces(keep_logs=keep_logs), *map(_link, links)]
    if not found:
        print(f"Dovetail has left nothing on this machine.\n{_STAYS}")
        return
    print("\n".join(f"{each.path}: {each.what}" for each in found), flush=True)
    if dry_run:
        return
    if not yes and not typer.confirm("\nEnd all jobs of this machine, and remove this?", err=True):
        raise CommandError("nothing is removed")
    for each in found:
        each.remove()
    if left := _left(found):
        raise CommandError(f"cannot be removed: {', '.join(map(str, left))}")
    print(f"Removed.\n{_STAYS}")


def _left(found: Sequence[Trace]) -> list[Path]:
    return [each.path for each in found if os.path.lexists(each.path)]


def _down(name: str) -> Callable[[], None]:
    return lambda: sandboxes.down(name, purge=True)


def _link(path: Path) -> Trace:
    def remove() -> None:
        # One that this user may not remove is named at the end.
        with contextlib.suppress(OSError):
            path.unlink()

    return Trace(path=path, what="another name of a command", remove=remove)


def _folder(path: Path, *, what: str) -> Trace:
    # Where something is in the way, it is named at the end.
    return Trace(path=path, what=what, remove=lambda: shutil.rmtree(path, ignore_errors=True))


def _home(variable: str, *parts: str) -> Path:
    return Path(os.environ.get(variable) or Path.home().joinpath(*parts))
