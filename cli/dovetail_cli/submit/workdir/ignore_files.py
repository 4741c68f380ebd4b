"""What `.gitignore` and `.dovetailignore` leave out, with git's rules.

A module of its own: git's rules over pathspec's patterns, which know nothing of jobs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec, Pattern, RegexPattern

from dovetail_cli.ui.errors import CommandError, UsageError

# The second takes precedence: it may take in again what git ignores.
FILES: Final = (".gitignore", ".dovetailignore")
# What no job needs; the last are the folders that `gjob fetch` makes. A line such as `!.venv/` takes it in again.
ALWAYS: Final = (".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "venv/", ".mypy_cache/", ".pytest_cache/",
                 ".ruff_cache/", ".ipynb_checkpoints/", ".DS_Store", "/job-[0-9]*/")  # fmt: skip
# What is in a folder, but not the folder: pathspec takes `data/**` for `data/` too, and then `!data/a` is never seen.
_INSIDE: Final = re.compile(r"/\*\*(/?)\s*$")
# How pathspec writes `*` and `*/`; the first is about files too.
_OF_ALL: Final = {".": True, "(?P<ps_d>/)": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The lines of one file, which count below its folder.

    spec     the lines
    prefix   what precedes a path of the walk, for a file above the directory: `src/`
    below    the folder of the file, for a file in the directory: `data/`
    """

    spec: GitIgnoreSpec
    prefix: str = ""
    below: str = ""

    def verdict(self, path: str) -> bool | None:
        """Whether the lines leave out a path; None if none is about it. Folders end with a slash."""
        name = f"{self.prefix}{path.removeprefix(self.below)}"
        return next((each.include for each in reversed(self.spec.patterns) if _matches(each, path=name)), None)


def _matches(pattern: Pattern, *, path: str) -> bool:
    """Whether a pattern is about this very path, as git asks.

    pathspec's own answer is also about what is below: `!src/` would take in all of it again, and after `*` nothing.
    """
    if not isinstance(pattern, RegexPattern) or pattern.regex is None:
        return False
    if pattern.regex.pattern in _OF_ALL:
        return _OF_ALL[pattern.regex.pattern] or path.endswith("/")
    return pattern.regex.fullmatch(path) is not None


def is_left_out(path: str, *, rules: Sequence[Rules]) -> bool:
    """Whether a path is left out: the last file with a line about it decides."""
    verdicts = (each.verdict(path) for each in reversed(rules))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def outermost(root: Path) -> tuple[Rules, ...]:
    """The rules from above `root`: the built-in ones, and those of its git repository."""
    own = (Rules(spec=GitIgnoreSpec.from_lines(ALWAYS)),)
    above = tuple(_above(root))
    # In a directory that git ignores as a whole, its rules would leave out everything.
    return own if is_left_out("", rules=above) else (*own, *above)


def inside(folder: Path, *, below: str) -> tuple[Rules, ...]:
    """The rules of the files in a folder of the walk.

    Raises `UsageError` for a line that is no pattern.
    """
    found = ((path, _spec(path)) for path in (folder / name for name in FILES))
    return tuple(Rules(spec=spec, below=below) for _, spec in found if spec is not None)


def _above(root: Path) -> Iterator[Rules]:
    repository = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    if repository == root:
        return
    between = [folder for folder in reversed(root.parents) if folder.is_relative_to(repository)]
    for folder in between:
        prefix = f"{root.relative_to(folder).as_posix()}/"
        for name in FILES:
            if (spec := _spec(folder / name)) is not None:
                yield Rules(spec=spec, prefix=prefix)


def _spec(path: Path) -> GitIgnoreSpec | None:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    try:
        return GitIgnoreSpec.from_lines(_INSIDE.sub(r"/**/*\1", line) for line in text.splitlines()) if text else None
    except ValueError as error:
        raise UsageError(f"{path}: a line is no pattern: {error}") from error
