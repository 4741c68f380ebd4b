"""The files of a directory that go along with a job, and how large they are."""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail_cli.submit.workdir import ignore_files
from dovetail_cli.submit.workdir.ignore_files import Rules
from dovetail_cli.submit.workdir.root_folder import RefusedError, RootFolder, parts_of, shown
from dovetail_cli.ui.errors import CommandError

# More is data rather than a program, and listing it takes long.
MAX_ENTRIES: Final = 20_000
_EXECUTABLE: Final = 0o100
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or folder of the directory.

    path         where it is, relative to the directory, with slashes
    target       where the file is that a link leads to; empty for a path that is no link
    folder       whether it is a folder
    size         a file's bytes
    executable   whether a file can be run
    """

    path: str
    target: str = ""
    folder: bool = False
    size: int = 0
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What goes along, in order, and what cannot: links to folders, sockets, odd names."""

    root: Path
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Entry, ...]:
        """The files alone."""
        return tuple(entry for entry in self.entries if not entry.folder)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.entries)


def of(root: Path) -> Listing:
    """List a directory.

    Raises `CommandError` for one that cannot be read, is too deep, has too many files, or has links to files that do
    not go along.
    """
    entries: list[Entry] = []
    left_out: list[str] = []
    try:
        with RootFolder(root) as opened:
            for found in _walk(root, opened=opened):
                if isinstance(found, str):
                    left_out.append(found)
                else:
                    entries.append(found)
                if len(entries) > MAX_ENTRIES:
                    raise CommandError(_too_many(root, entries=entries))
    except RefusedError as error:
        raise CommandError(f"{root} cannot go along: it changed while it was read: {error}") from error
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}, so the directory cannot go along") from error
    _check_links(entries, root=root)
    return Listing(root=root, entries=tuple(entries), left_out=tuple(left_out))


def _walk(root: Path, *, opened: RootFolder) -> Iterator[Entry | str]:
    """Entries, and the paths of what cannot go along; folders before what is in them."""
    real_root = Path(os.path.realpath(root))
    waiting: list[tuple[str, tuple[Rules, ...]]] = [("", ignore_files.outermost(root))]
    while waiting:
        below, rules = waiting.pop()
        rules = (*rules, *ignore_files.inside(root / below, below=below))
        folders = []
        with opened.folder(_checked(below)) as folder, os.scandir(folder) as listed:
            for entry in sorted(listed, key=lambda entry: entry.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                path = f"{below}{entry.name}{'/' if is_folder else ''}"
                if ignore_files.is_left_out(path, rules=rules):
                    continue
                if not _has_plain_name(entry.name) or not (is_folder or entry.is_file()):
                    yield path
                elif is_folder:
                    folders.append((path, rules))
                    yield Entry(path=path.rstrip("/"), folder=True)
                else:
                    yield _file(entry, path=path, root=real_root)
        waiting += reversed(folders)


def _checked(below: str) -> tuple[str, ...]:
    try:
        return parts_of(below)
    except RefusedError as error:
        raise CommandError(f"{shown(below)} cannot go along: {error}") from error


def _file(entry: "os.DirEntry[str]", *, path: str, root: Path) -> Entry:
    about = entry.stat()
    target = os.path.relpath(os.path.realpath(root / path), root) if entry.is_symlink() else ""
    return Entry(path=path, target=target, size=about.st_size, executable=bool(about.st_mode & _EXECUTABLE))


def _check_links(entries: Collection[Entry], *, root: Path) -> None:
    """Raise `CommandError` unless each link leads to a file that goes along too.

    Otherwise a cloned repository decides which files of its user the whole namespace can read.
    """
    own = {entry.path for entry in entries if not entry.folder and not entry.target}
    others = [entry for entry in entries if entry.target and entry.target not in own]
    if not others:
        return
    named = ", ".join(f"{entry.path} to {shown(str(_target(entry, root=root)))}" for entry in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    raise CommandError(
        f"links lead to files that do not go along: {named}{more}. Copy such a file into the directory if the job "
        "needs it, or name the link in .dovetailignore"
    )


def _target(entry: Entry, *, root: Path) -> Path:
    return Path(os.path.normpath(Path(os.path.realpath(root)) / entry.target))


def _has_plain_name(name: str) -> bool:
    """Whether the script that unpacks can tell the name from a link in the list of an archive."""
    return name.isprintable() and " -> " not in name and " link to " not in name


def _too_many(root: Path, *, entries: Sequence[Entry]) -> str:
    counts = Counter(entry.path.partition("/")[0] for entry in entries)
    (folder, count), *_ = counts.most_common(1)
    return (
        f"{root} has more than {MAX_ENTRIES} files, {count} of them in {folder}: name what the job does not need in "
        ".dovetailignore, such as data/, or leave the directory out with --no-upload"
    )
