"""Slurm's names in a folder: links to the program `dovetail`, installed and removed."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from dovetail_cli.slurm.programs import PROGRAMS
from dovetail_cli.ui.errors import CommandError, UsageError

_PROGRAM: Final = "dovetail"


def install(folder: str | None) -> list[str]:
    """Install the names, and return a sentence for each, and on another program that hides it.

    Replaces no other program: raises `UsageError` before anything is written.
    """
    program, where = _program(), _folder(folder)
    for name in PROGRAMS:
        _check(where / name, program=program)
    said = []
    for name in PROGRAMS:
        link = where / name
        if not link.is_symlink():
            try:
                where.mkdir(parents=True, exist_ok=True)
                link.symlink_to(program)
            except OSError as error:
                raise CommandError(
                    f"{link}: {error.strerror}: name a folder of yours, such as --dir ~/.local/bin"
                ) from error
        said.append(f"{link} is {PROGRAMS[name][0]} with Slurm's options.")
        if (first := shutil.which(name)) is not None and Path(first) != link:
            said.append(f"But {first} comes first in your PATH.")
    if str(where) not in os.get_exec_path():
        said.append(f"{where} is not in your PATH.")
    return said


def remove(folder: str | None) -> list[str]:
    """Remove the names, and return a sentence for each. Other programs of these names stay."""
    where = _folder(folder)
    said = []
    for name in PROGRAMS:
        link = where / name
        if _is_ours(link):
            try:
                link.unlink()
            except OSError as error:
                raise CommandError(f"{link}: {error.strerror}") from error
            said.append(f"{link} is removed.")
    return said or [f"{where} has none of these names."]


def on_path() -> list[Path]:
    """The names that are installed in the folders of PATH."""
    folders = dict.fromkeys(os.get_exec_path())
    return [link for folder in folders for name in PROGRAMS if _is_ours(link := Path(folder) / name)]


def _check(link: Path, *, program: Path) -> None:
    if (link.exists() or link.is_symlink()) and not (_is_ours(link) and link.resolve() == program.resolve()):
        other = "is of another installation of Dovetail: remove it first" if _is_ours(link) else "is another program"
        raise UsageError(f"{link} {other}; name another folder, such as --dir ~/dovetail-bin")


def _is_ours(link: Path) -> bool:
    return link.is_symlink() and Path(os.readlink(link)).name == _PROGRAM  # noqa: PTH115 - the text as it is


def _folder(folder: str | None) -> Path:
    return _program().parent if folder is None else Path(folder).expanduser().absolute()


def _program() -> Path:
    """The program that runs, or the one in the PATH if Python runs a module.

    Raises `CommandError`.
    """
    running = Path(sys.argv[0])
    if running.name == _PROGRAM:
        return running.absolute()
    found = shutil.which(_PROGRAM) or str(Path(sys.executable).with_name(_PROGRAM))
    if not Path(found).exists():
        raise CommandError(f"the program {_PROGRAM} is not installed here: pip install dovetail-gpu")
    return Path(found).absolute()
