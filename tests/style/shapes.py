"""Public functions that take or return arrays, and whether their docstrings state the shapes.

`python -m tests.style.shapes` prints the share and each function without a shape. A shape is written in brackets, such
as `[n]` or `[nodes, devices]`, and the unit is in words after it, or in the name (`free_mib`).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("core", "scheduler_extender")
ARRAYS: Final = re.compile(r"\b(?:NDArray|ArrayLike|Ints|Floats|Bools|Counts|Rows|Millis)\b")
# Not a type's parameters, such as `Sequence[str]`.
SHAPE: Final = re.compile(r"(?<!\w)\[\w+(?:, (?:\w+|\.\.\.))*\]")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Owner = ast.Module | ast.ClassDef


class Found(NamedTuple):
    """One public function with an array in its signature."""

    path: Path
    name: str
    line: int
    has_shape: bool


def functions() -> list[Found]:
    """All of them, in the order of files and lines."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [found for path in paths for found in in_source(path.read_text(encoding="utf-8"), path=path)]


def in_source(source: str, *, path: Path) -> Iterator[Found]:
    """The public functions with arrays in one file."""
    for owner, function in _public(ast.parse(source)):
        if ARRAYS.search(_signature(function)):
            name = f"{owner.name}.{function.name}" if isinstance(owner, ast.ClassDef) else function.name
            shape = SHAPE.search(_docstring(function, owner=owner)) is not None
            yield Found(path=path, name=name, line=function.lineno, has_shape=shape)


def _public(owner: Owner) -> Iterator[tuple[Owner, Function]]:
    """Functions and methods without a leading underscore, and `__init__`, each with its module or class."""
    for node in owner.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node)
        elif isinstance(node, Function) and (node.name == "__init__" or not node.name.startswith("_")):
            yield owner, node


def _docstring(function: Function, *, owner: Owner) -> str:
    """The docstring; that of the class counts for `__init__` too."""
    own = ast.get_docstring(function) or ""
    return own + (ast.get_docstring(owner) or "") if function.name == "__init__" else own


def _signature(function: Function) -> str:
    """The annotations of parameters and result, as text."""
    given = function.args
    of_parameters = [each.annotation for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return " ".join(ast.unparse(each) for each in (*of_parameters, function.returns) if each is not None)


def main() -> None:
    """Print the share, and the functions without a shape."""
    found = functions()
    for each in found:
        if not each.has_shape:
            print(f"{each.path.relative_to(ROOT)}:{each.line}: {each.name}")
    print(f"{sum(each.has_shape for each in found)} of {len(found)} public functions with arrays state their shapes")


if __name__ == "__main__":
    main()
