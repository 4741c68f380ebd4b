"""Words that mark a sentence as hard to read, counted by folder.

`python -m tests.style.words` prints the counts, `--show FOLDER` each place, and `--lower` writes them as the new limits
where they are smaller. A limit never rises; a folder that is not in limits.json has none.

Pages and the chart's texts are searched as a whole, Python files in their docstrings, comments and string literals.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
LIMITS: Final = Path(__file__).with_name("limits.json")

WORDS: Final = re.compile(
    r"\b(?:told|anew|reckon(?:s|ed|ing)?|(?:let|lets|letting)\s+go|(?:make|makes|made|making)\s+way|mend(?:s|ed|ing)?"
    r"|beside|nobody|somebody|whoever|what\s+becomes\s+of|stands|goes\s+by|in\s+vain|of\s+late|again\s+and\s+again"
    r"|heed(?:s|ed|ing)?)\b",
    flags=re.IGNORECASE,
)
# Each of these stays, with the reason.
ALLOWED: Final = {
    "stands for": "an abbreviation stands for its words",
    "--mended": "an option's name",
    "mended:": "a field of the API",
    "nobody:": "a user of a Linux node",
}
# String literals that are one of these words as a whole, with the reason.
LITERALS: Final = {"mended": "a field of the API"}

# What each line of the table covers, relative to the repository.
FOLDERS: Final = {
    "pages": ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs"),
    "changelog": ("CHANGELOG.md",),
    "chart": ("helm", "dashboards", "examples"),
    "core": ("core", "legacy"),
    "operator": ("operator",),
    "extender": ("scheduler_extender",),
    "agent": ("node_agent",),
    "webhook": ("admission_webhook",),
    "local node": ("local_node",),
    "gateway": ("gateway",),
    "cli": ("cli",),
    "sandbox": ("sandbox",),
    "images": ("images", "Makefile", "pyproject.toml"),
    "benchmarks": ("benchmarks",),
    "tests": ("tests",),
}
_PROSE: Final = {".md", ".yaml", ".yml", ".json", ".tpl", ".txt", ".toml", ""}
_SKIPPED: Final = {"limits.json", "words.py", "_pb2.py", "_pb2.pyi"}


class Place(NamedTuple):
    """One occurrence."""

    path: Path
    line: int
    word: str


def places(folder: str) -> list[Place]:
    """All occurrences in one of `FOLDERS`, in the order of files and lines."""
    return [place for path in _files(FOLDERS[folder]) for place in _in_file(path)]


def found(text: str) -> list[tuple[int, str]]:
    """The words of a text, each with its line, counted from 1; identifiers in backticks do not count."""
    for phrase in ALLOWED:
        text = text.replace(phrase, "-" * len(phrase))
    text = re.sub(r"`[^`\s]+`|\]\([^)\s]+\)", lambda span: "-" * len(span[0]), text)
    return [
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].lower().split())) for match in WORDS.finditer(text)
    ]


def _in_file(path: Path) -> Iterator[Place]:
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".py", ".pyi"}:
        for first, part in _texts(text):
            for line, word in found(part):
                yield Place(path=path, line=first + line - 1, word=word)
        return
    for line, word in found(text):
        yield Place(path=path, line=line, word=word)


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """String literals (docstrings and messages) and comments, each with its first line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in LITERALS:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _files(roots: tuple[str, ...]) -> Iterator[Path]:
    for root in roots:
        path = ROOT / root
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            wanted = each.is_file() and each.suffix in _PROSE | {".py", ".pyi", ".c", ".h"}
            if (
                each.is_file()
                and wanted
                and not each.name.endswith(tuple(_SKIPPED))
                and "__pycache__" not in each.parts
            ):
                yield each


def counts() -> dict[str, int]:
    """How many occurrences each folder has."""
    return {folder: len(places(folder)) for folder in FOLDERS}


def main(arguments: list[str]) -> None:
    """Print the counts, or the places of one folder, or lower the limits."""
    if arguments[:1] == ["--show"]:
        for place in places(arguments[1]):
            print(f"{place.path.relative_to(ROOT)}:{place.line}: {place.word}")
        return
    now, limits = counts(), json.loads(LIMITS.read_text(encoding="utf-8"))
    if arguments == ["--lower"]:
        lowered = {folder: min(now[folder], limit) for folder, limit in limits.items()}
        LIMITS.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")
        return
    for folder, count in now.items():
        print(f"{folder:12} {count:5}  limit {limits.get(folder, 'none')}")
    print(f"{'all':12} {sum(now.values()):5}")


if __name__ == "__main__":
    main(sys.argv[1:])
