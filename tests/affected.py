"""Choose which groups `make test` leaves out, because nothing changed that they depend on.

Prints pytest's options that leave them out, and says on standard error what runs and why. The change is what differs
from the merge base with main. On main itself it is what differs from the last commit whose run has passed: the variable
DOVETAIL_PROVED names it, or CI has noted it on this machine (`--passed`). Where none is known, every group runs.
"""

import os
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import grimp

from tests.groups import ROOT, Group, Groups, groups
from tools.changes import changed_files, git, merge_base

PROVED: Final = "DOVETAIL_PROVED"
_CACHE: Final = ".import_linter_cache"


class Imports:
    """Who imports whom, among the product's packages and the tests."""

    def __init__(self, folder: Path) -> None:
        settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        roots = settings["tool"]["importlinter"]["root_packages"]
        self._graph = grimp.build_graph(*roots, "tests", cache_dir=str(folder / _CACHE))
        self._folders = [folder / each for each in settings["tool"]["ruff"]["src"]]

    def module_of(self, path: Path) -> str | None:
        """The module of a file, or the package that has it as data; None outside all packages."""
        for folder in self._folders:
            if path.is_relative_to(folder):
                parts = path.relative_to(folder).with_suffix("").parts
                names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
                if found := next((name for name in names if name in self._graph.modules), None):
                    return found
        return None

    def needed_by(self, modules: Iterable[str]) -> frozenset[str]:
        """The modules with those below them, all that they import, and the packages of all these."""
        found = set[str]()
        for module in modules:
            for each in {module, *self._graph.find_descendants(module)}:
                found |= {each, *self._graph.find_upstream_modules(each)}
        # An import of a module runs the `__init__` of each package above it.
        return frozenset(above for each in found for above in _with_packages(each))


def _with_packages(module: str) -> Iterable[str]:
    parts = module.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def base_of(folder: Path) -> str | None:
    """The commit to compare with; None if there is none, and every group must run."""
    if base := merge_base(folder):
        return base
    note = noted_in()
    proved = os.environ.get(PROVED) or (note.read_text(encoding="utf-8").strip() if note.exists() else "")
    commit = git(folder, "rev-parse", "--verify", "--quiet", f"{proved}^{{commit}}") if proved else ""
    # Of another commit before HEAD, from which a branch with this one has come, nothing is known.
    return commit if commit and git(folder, "merge-base", "HEAD", commit) == commit else None


def noted_in() -> Path:
    """The file of this machine with the last commit whose run has passed, also where that run left groups out."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dovetail", "proved")


def note_passed(folder: Path, *, commit: str) -> None:
    """Note that the run which began at this commit of main has passed, unless files differ from it by now.

    The run of a branch leaves out what is as it was where the branch left main, whether that commit has passed or not.
    """
    if merge_base(folder) or git(folder, "status", "--porcelain"):
        return
    if commit and commit == git(folder, "rev-parse", "HEAD"):
        noted_in().parent.mkdir(parents=True, exist_ok=True)
        noted_in().write_text(f"{commit}\n", encoding="utf-8")


def cause(group: Group, *, changed: Iterable[str], everyone: Iterable[str], imports: Imports) -> str | None:
    """The first changed path that concerns the group; None if none does."""
    own = [module for each in group.tests if (module := imports.module_of(ROOT / each))]
    helpers = {module for module in imports.needed_by(own) if module.startswith("tests.")}
    modules = helpers | imports.needed_by(group.modules)
    places = (*group.tests, *group.paths, *everyone)
    for path in sorted(changed):
        is_placed = any(path == place or path.startswith(f"{place}/") for place in places)
        if is_placed or imports.module_of(ROOT / path) in modules:
            return path
    return None


def chosen(found: Groups, *, base: str | None) -> Iterable[tuple[Group, str | None]]:
    """Each group that may be left out, with the reason why it runs; None: it is left out."""
    optional = [group for group in found.every if group.is_optional]
    if base is None:
        yield from ((group, "no commit is known to compare with") for group in optional)
        return
    changed, imports = changed_files(ROOT, base=base), Imports(ROOT)
    for group in optional:
        yield group, cause(group, changed=changed, everyone=found.of_all, imports=imports)


def main() -> None:
    """Print the options, and what runs; with `--passed COMMIT`, note that the run of this commit has passed."""
    if sys.argv[1:2] == ["--passed"]:
        note_passed(ROOT, commit=sys.argv[2])
        return
    for group, why in chosen(groups(), base=base_of(ROOT)):
        print(f"{group.name}: {f'runs: {why}' if why else 'left out, nothing it depends on changed'}", file=sys.stderr)
        if why is None:
            print(*(f"--ignore={path}" for path in group.tests))


if __name__ == "__main__":
    main()
