"""The groups of tests, from groups.toml: which folders and files they have, what they may cost, what they depend on."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = Path(__file__).with_name("groups.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of tests.

    - `name`: its name in reports.
    - `tests`: its folders and files. A test belongs to the group that names the longest part of its path.
    - `seconds`: its budget in `make test`. Waiting counts only for a group that waits.
    - `waits`: whether its tests have a control plane or a real node, and so mostly wait.
    - `modules`, `paths`: what it depends on besides its tests: product modules with all that they import, and folders
      or files. Without either it always runs.
    """

    name: str
    tests: tuple[str, ...]
    seconds: int
    waits: bool = False
    modules: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def is_optional(self) -> bool:
        """Whether `make test` leaves it out if nothing changed that it depends on."""
        return bool(self.modules or self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """All groups, and the paths whose change concerns every group."""

    every: tuple[Group, ...]
    of_all: tuple[str, ...]

    def of(self, nodeid: str) -> Group:
        """The group of a test. Raises `KeyError` if no group has it."""
        path = PurePosixPath(nodeid.partition("::")[0])
        for part in (path, *path.parents):
            if group := self._by_path.get(str(part)):
                return group
        raise KeyError(f"{nodeid}: tests/groups.toml has no group for it")

    @property
    def _by_path(self) -> Mapping[str, Group]:
        return {path: group for group in self.every for path in group.tests}


@cache
def groups() -> Groups:
    """The groups of groups.toml."""
    found: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    every = tuple(
        Group(
            name=name,
            tests=tuple(group["tests"]),
            seconds=group["seconds"],
            waits=group.get("waits", False),
            modules=tuple(group.get("modules", ())),
            paths=tuple(group.get("paths", ())),
        )
        for name, group in found["groups"].items()
    )
    return Groups(every=every, of_all=tuple(found["paths_of_all"]))
