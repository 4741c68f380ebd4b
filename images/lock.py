"""Print the part of requirements.lock that some roots need, with versions, markers and hashes unchanged.

    lock.py IMAGE            what the image of that name has
    lock.py --names NAME...  what those packages need, such as the build backend

pip then installs with `--require-hashes`, so nothing enters an image that the tests did not run with. Runs on the
standard library alone: it prepares the build that installs everything else.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).resolve().parents[1]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One locked package: its lines of the lock file, and the packages that asked for it."""

    lines: tuple[str, ...]
    via: frozenset[str]


def canonical(name: str) -> str:
    """The name as PyPI compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """The package that a requirement such as `psycopg[binary]>=3.2` names."""
    found = _NAME.match(requirement)
    if found is None:
        raise ValueError(f"'{requirement}' is no requirement: a package's name comes first")
    return canonical(found[0])


def locked(text: str) -> dict[str, list[Requirement]]:
    """The packages of a lock file by name; one that is locked twice has a marker on each version."""
    packages: dict[str, list[Requirement]] = {}
    for block in re.split(r"\n(?=[^\s#])", text):
        if not _NAME.match(block):
            continue
        pins = tuple(line for line in block.splitlines() if not line.lstrip().startswith("#"))
        comments = "\n".join(line.lstrip(" #") for line in block.splitlines() if line.lstrip().startswith("#"))
        via = frozenset(canonical(word) for word in _NAME.findall(comments))
        packages.setdefault(name_of(block), []).append(Requirement(lines=pins, via=via))
    return packages


def roots_of(pyproject: Mapping[str, Any], *, image: str) -> list[str]:
    """The packages of an image by pyproject.toml: those that every image has, and its own extra's."""
    project, images = pyproject["project"], pyproject["tool"]["dovetail"]["images"]
    if image not in images["names"]:
        raise ValueError(f"unknown image '{image}': one of {', '.join(sorted(images['names']))}")
    own = project["dependencies"] if image == "cli" else project["optional-dependencies"][image]
    return [*images["core"], *map(name_of, own)]


def needed(packages: Mapping[str, list[Requirement]], *, roots: Iterable[str]) -> list[str]:
    """The lines of the roots and of all that they brought in. Raises `ValueError` for a root that is not locked."""
    found = {name_of(root) for root in roots}
    if missing := sorted(found - packages.keys()):
        raise ValueError(f"requirements.lock does not have {', '.join(missing)}: run `make lock`")
    while more := {name for name, each in packages.items() if any(one.via & found for one in each)} - found:
        found |= more
    return [line for name in sorted(found) for each in packages[name] for line in each.lines]


def main(arguments: list[str]) -> int:
    """The lines on standard output; the exit code."""
    packages = locked((SOURCE / "requirements.lock").read_text(encoding="utf-8"))
    pyproject = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))
    try:
        roots = arguments[1:] if arguments[:1] == ["--names"] else roots_of(pyproject, image="".join(arguments))
        print("\n".join(needed(packages, roots=roots)))
    except ValueError as error:
        print(f"lock.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
