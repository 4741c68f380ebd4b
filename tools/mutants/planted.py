"""Tries bugs that a reader planted: a folder of patches, each against the checkout, one bug a patch.

``python -m tools.mutants.planted FOLDER`` runs for each patch the tests that execute what it changes, all of them, and
prints what found it. The result is ``out/mutants/planted.json``.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.mutants.catalogue import MODULE_LEVEL
from tools.mutants.reach import measured
from tools.mutants.trials import Outcome, Result, Settings, run_trials

_RESULTS: Final = Path("out/mutants/planted.json")
_UNIT_TESTS: Final = (
    "tests/core", "tests/world", "tests/operator_", "tests/extender", "tests/agent", "tests/local_node",
    "tests/webhook", "tests/sdk", "tests/cli", "tests/gateway",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What one patch changes in one module. A patch of two modules is two of them, and found where one is.

    patch: the name of its file, without its ending.
    module: dotted name.
    path: its file.
    functions: qualified names of the outermost functions that the patch changes, ``<module>`` for what is outside.
    source: the module with the bug.
    """

    patch: str
    module: str
    path: Path
    functions: frozenset[str]
    source: str


def bugs_of(patches: Path, *, checkout: Path) -> Iterator[Planted]:
    """The bugs of a folder of `*.patch`. Raises ValueError for one that cannot be applied."""
    for patch in sorted(patches.glob("*.patch")):
        touched = subprocess.run(
            ["git", "apply", "--numstat", patch], cwd=checkout, capture_output=True, text=True, check=True
        ).stdout
        names = [line.split("\t")[2] for line in touched.splitlines()]
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkout / name, Path(folder) / name)
            # Outside of any repository.
            applied = subprocess.run(
                ["git", "apply", patch.resolve()],
                cwd=folder, env={**os.environ, "GIT_CEILING_DIRECTORIES": folder},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if applied.returncode:
                raise ValueError(f"{patch.name} cannot be applied: {applied.stderr.strip()}")
            for name in names:
                yield _bug(patch.stem, path=checkout / name, name=name, source=(Path(folder) / name).read_text())


def _bug(patch: str, *, path: Path, name: str, source: str) -> Planted:
    changed = _changed(ast.parse(path.read_text()), after=ast.parse(source))
    parts = Path(name).with_suffix("").parts[1:]
    dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Planted(patch=patch, module=dotted, path=path, functions=changed, source=source)


def _changed(before: ast.Module, *, after: ast.Module) -> frozenset[str]:
    """The outermost functions that read otherwise."""
    old, new = dict(_functions(before)), dict(_functions(after))
    names = {name for name in old.keys() & new.keys() if old[name] != new[name]}
    return frozenset(names or {MODULE_LEVEL})


def _functions(tree: ast.AST, *, within: str = "") -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield within + node.name, ast.dump(node)
            case ast.ClassDef():
                yield from _functions(node, within=f"{within}{node.name}.")
            case _:
                yield from _functions(node, within=within)


def main() -> None:
    """Try them all, and write what found each."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.planted", description=__doc__)
    parser.add_argument("patches", type=Path, help="a folder of *.patch")
    parser.add_argument("--jobs", type=int, default=1, help="bugs at a time")
    parser.add_argument("--patience", type=float, default=120, help="CPU seconds of tests for one bug")
    parser.add_argument("--tests", nargs="+", default=_UNIT_TESTS, help="folders or files of tests")
    options = parser.parse_args()
    bugs = list(bugs_of(options.patches, checkout=Path.cwd()))
    tests = measured(options.tests, fresh=False)
    settings = Settings(patience_seconds=options.patience, jobs=options.jobs)
    results = run_trials(bugs, tests=tests, settings=settings, tell=_print_result)
    found = _by_patch(results)
    _RESULTS.parent.mkdir(parents=True, exist_ok=True)
    _RESULTS.write_text(json.dumps(found, indent=1))
    print(f"{sum(bool(each['found_by']) for each in found)} of {len(found)} found")


def _by_patch(results: Sequence[Result[Planted]]) -> list[dict[str, str]]:
    rows = dict[str, dict[str, str]]()
    for each in sorted(results, key=lambda each: (each.mutant.patch, each.outcome)):
        row = rows.setdefault(each.mutant.patch, {"patch": each.mutant.patch, "found_by": ""})
        row["found_by"] = row["found_by"] or _finder(each)
    return list(rows.values())


def _finder(result: Result[Planted]) -> str:
    return "it does not end" if result.outcome is Outcome.TIMEOUT else result.test


def _print_result(result: Result[Planted]) -> None:
    print(
        f"{result.mutant.patch} {result.mutant.path.relative_to(Path.cwd())}: {result.outcome} {result.test}",
        flush=True,
    )


if __name__ == "__main__":
    main()
