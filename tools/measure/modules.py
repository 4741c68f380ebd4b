"""The product's modules, their size, and which modules import them.

`python -m tools.measure.modules` prints the modules that one module of their own package alone imports and that have
fewer than 120 lines: each belongs to its importer, unless its docstring says "A module of its own: ..." and why.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# The folders that Python searches for packages.
PARTS: Final = (
    "core", "operator", "scheduler_extender", "node_agent", "admission_webhook", "local_node", "gateway", "cli",
    "sandbox",
)  # fmt: skip
LEAST_LINES: Final = 120
_EXCUSE: Final = "A module of its own: "


@cache
def sources() -> Mapping[str, str]:
    """The text of each module by its full name, without generated ones."""
    return {
        name_of(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*.py"))
        if not path.name.endswith("_pb2.py")
    }


def name_of(path: Path) -> str:
    """The full name of the module at `path`, which is below the repository's root."""
    parts = path.relative_to(path.parts[0]).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_package(name: str) -> bool:
    """Whether `name` is a package's own module."""
    return any((ROOT / part / Path(*name.split(".")) / "__init__.py").exists() for part in PARTS)


def importers(texts: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    """The modules that import each module."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, text in texts.items():
        for imported in _imported(text, known=texts):
            if imported != name:
                found[imported].add(name)
    return {name: frozenset(found[name]) for name in texts}


def _imported(text: str, *, known: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                full = f"{node.module}.{each.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def thin(texts: Mapping[str, str]) -> Mapping[str, str]:
    """The modules that belong to their only importer, which is of their own package, with that importer."""
    found = {}
    for name, users in importers(texts).items():
        user = next(iter(users), "")
        near = len(users) == 1 and user.rpartition(".")[0] == name.rpartition(".")[0]
        if near and len(texts[name].splitlines()) < LEAST_LINES and not (is_package(name) or is_excused(texts[name])):
            found[name] = user
    return found


def is_excused(text: str) -> bool:
    """Whether a module's docstring says why it is one."""
    return _EXCUSE in " ".join((ast.get_docstring(ast.parse(text)) or "").split())


def main(names: Sequence[str] = ()) -> None:
    """Print each thin module, its lines and its importer."""
    texts = sources()
    for name, user in sorted(thin(texts).items()):
        if not names or name in names:
            print(f"{len(texts[name].splitlines()):4} {name} <- {user}")


if __name__ == "__main__":
    main()
