"""The files of a directory that go along with a job, and how large they are."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail_cli.submit.workdir import ignore_files
from dovetail_cli.submit.workdir.ignore_files import Rules
from dovetail_cli.ui.errors import CommandError

# More is data rather than a program, and listing it takes long.
MAX_ENTRIES: Final = 20_000
_EXECUTABLE: Final = 0o100


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or folder of the directory.

    path         where it is, relative to the directory, with slashes
    folder       whether it is a folder
    size         a file's bytes
    executable   whether a file can be run
    """

    path: str
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

    Raises `CommandError` for one that cannot be read or has too many files.
    """
    entries: list[Entry] = []
    left_out: list[str] = []
    try:
        for found in _walk(root):
            if isinstance(found, str):
                left_out.append(found)
            else:
                entries.append(found)
            if len(entries) > MAX_ENTRIES:
                raise CommandError(_too_many(root, entries=entries))
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}, so the directory cannot go along") from error
    return Listing(root=root, entries=tuple(entries), left_out=tuple(left_out))


def _walk(root: Path) -> Iterator[Entry | str]:
    """Entries, and the paths of what cannot go along; folders before what is in them."""
    waiting: list[tuple[str, tuple[Rules, ...]]] = [("", ignore_files.outermost(root))]
    while waiting:
        below, rules = waiting.pop()
        rules = (*rules, *ignore_files.inside(root / below, below=below))
        with os.scandir(root / below) as listed:
            inside = sorted(listed, key=lambda entry: entry.name)
        folders = []
        for entry in inside:
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
                about = entry.stat()
                yield Entry(path=path, size=about.st_size, executable=bool(about.st_mode & _EXECUTABLE))
        waiting += reversed(folders)


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
