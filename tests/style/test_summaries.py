"""The first line of a docstring in cli/ is a summary that is read at a glance."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LONGEST: Final = 90


def _summaries(path: Path) -> Iterator[tuple[int, str]]:
    """The first line of each docstring of a file, with the line of its function, class or module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield line, (ast.get_docstring(node) or "").split("\n")[0]


def test_no_summary_of_the_commands_is_longer_than_90_characters() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{line}: {len(summary)}"
        for path in sorted((ROOT / "cli").rglob("*.py"))
        for line, summary in _summaries(path)
        if len(summary) > LONGEST
    ]
    assert not long, "\n".join(long)
