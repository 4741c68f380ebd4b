"""Families of data classes: those of different modules that share most of their fields, so that one fact has two homes.

`python -m tools.measure.families` prints them, the largest first. Two classes belong together if they share at least
three fields, and three of five of all that they have. A class counts with the fields that it states itself: what it has
from a class that it extends is said once.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from tools.measure.modules import PARTS, ROOT

_LEAST_SHARED: Final = 3
_LEAST_RATIO: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class DataClass:
    """A class with fields: the module that has it, its name, its fields and its number of lines."""

    module: str
    name: str
    fields: frozenset[str]
    lines: int

    def resembles(self, other: "DataClass") -> bool:
        """Whether both are in different modules and share most of their fields."""
        shared = len(self.fields & other.fields)
        enough = shared >= _LEAST_SHARED and shared >= _LEAST_RATIO * len(self.fields | other.fields)
        return enough and self.module != other.module


def data_classes(root: Path = ROOT) -> list[DataClass]:
    """All classes with two or more fields; generated code does not count."""
    paths = (path for part in PARTS for path in sorted((root / part).rglob("*.py")))
    ours = [path for path in paths if "_pb2" not in path.name and "sdk/blocking" not in path.as_posix()]
    return [
        found
        for path in ours
        for found in in_source(path.read_text(encoding="utf-8"), module=path.relative_to(root).as_posix())
    ]


def in_source(source: str, *, module: str) -> Iterator[DataClass]:
    """The classes of one module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            stated = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            fields = frozenset(target.id for target in stated if isinstance(target, ast.Name))
            if len(fields) > 1:
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield DataClass(module=module, name=node.name, fields=fields, lines=lines)


def families(classes: Sequence[DataClass]) -> list[list[DataClass]]:
    """The classes that resemble each other, directly or by others, the families with the most lines first."""
    family = {each: [each] for each in classes}
    for one, other in combinations(classes, 2):
        if family[one] is not family[other] and one.resembles(other):
            family[one] += family[other]
            family |= dict.fromkeys(family[other], family[one])
    found = {id(members): members for members in family.values() if len(members) > 1}
    return sorted(found.values(), key=_lines, reverse=True)


def same_names(classes: Iterable[DataClass], *, least: int = 3) -> dict[str, int]:
    """How many modules have a class of the same name, for names of at least so many."""
    modules: dict[str, set[str]] = defaultdict(set)
    for each in classes:
        modules[each.name.lstrip("_")].add(each.module)
    return {name: len(found) for name, found in sorted(modules.items()) if len(found) >= least}


def _lines(members: Iterable[DataClass]) -> int:
    return sum(each.lines for each in members)


if __name__ == "__main__":
    known = data_classes()
    together = families(known)
    for members in together:
        listed = "; ".join(f"{each.module}:{each.name} ({len(each.fields)})" for each in members)
        print(f"{len(members)} classes, {_lines(members)} lines: {listed}")
    beyond = sum(_lines(members) - max(each.lines for each in members) for members in together)
    print(f"{len(known)} data classes, {len(together)} families of {sum(map(len, together))} classes")
    print(f"{beyond} lines beyond one class for each family")
    print("Class names of three or more modules:", ", ".join(f"{name} {n}" for name, n in same_names(known).items()))
