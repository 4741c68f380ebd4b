"""The checksums of a release, and its table of files."""

import hashlib
from pathlib import Path
from typing import Final

NAME: Final = "SHA256SUMS"


def write_sums(folder: Path, *, skip: Path | None = None) -> None:
    """Write the checksums of all files below a folder, except those below `skip`, as `sha256sum --check` reads them.

    Files are named without their folders, as a release page has them.
    """
    lines = [f"{digest(path)}  {path.name}\n" for path in files(folder, skip=skip)]
    (folder / NAME).write_text("".join(lines), encoding="utf-8")


def table(folder: Path) -> str:
    """A line for each file: its checksum, its size and its name."""
    rows = [(digest(path), path.stat().st_size, path.relative_to(folder)) for path in files(folder)]
    return "\n".join(f"{each}  {size / 1e6:>9.3f} MB  {name}" for each, size, name in rows)


def files(folder: Path, *, skip: Path | None = None) -> list[Path]:
    """The files below a folder in the order of their names, without lists of checksums."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    return sorted(path for path in found if skip is None or not path.is_relative_to(skip))


def digest(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
