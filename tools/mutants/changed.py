"""A sample of the mutants of changed lines, for CI and `make mutants-changed`: it takes two minutes at most.

Compared with are the merge base with main and, on main itself, the last commit. Without any history there is nothing
to compare with.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.changes import git, merge_base
from tools.mutants.catalogue import Mutant, modules_of, mutants_of
from tools.mutants.packages import PACKAGES, tests_of
from tools.mutants.reach import measured
from tools.mutants.trials import Outcome, Result, Settings, run_trials

_SAMPLE: Final = 40
# What the tests are measured for, and until when a mutant may begin: the last one ends within two minutes.
_MEASURE_SECONDS: Final = 40.0
_BEGIN_SECONDS: Final = 80.0
_PATIENCE_SECONDS: Final = 3.0
_HUNK: Final = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def base_of(folder: Path) -> str | None:
    """The commit to compare with; None without git or without history."""
    return merge_base(folder) or git(folder, "rev-parse", "--verify", "--quiet", "HEAD~1") or None


def changed_lines(folder: Path, *, base: str) -> Mapping[str, frozenset[int]]:
    """The lines of Python files that are new or other than at `base`, by path; a file that only moved has none."""
    found: dict[str, set[int]] = {}
    path = ""
    for line in git(folder, "diff", "--unified=0", "--find-renames", base, "--", "*.py").splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif hunk := _HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(path, set()).update(range(first, first + count))
    return {path: frozenset(lines) for path, lines in found.items() if lines}


def _mutants(lines: Mapping[str, frozenset[int]]) -> Sequence[Mutant]:
    """The mutants of changed lines of the packages that are judged."""
    modules = {path: name for package in PACKAGES for name, path in modules_of(package)}
    changed = {Path(path).resolve(): numbers for path, numbers in lines.items()}
    return [
        mutant
        for path, name in sorted(modules.items())
        if path in changed
        for mutant in mutants_of(name, path=path)
        if mutant.line in changed[path]
    ]


def main() -> None:
    """Try them, and print those that no test finds. These fail nothing: there is no time to run every test."""
    start = time.monotonic()
    base = base_of(Path.cwd())
    if base is None:
        print("mutants of changed lines: no history to compare with")
        return
    every = _mutants(changed_lines(Path.cwd(), base=base))
    # The same change gives the same sample.
    drawn = random.Random(len(every)).sample(every, min(_SAMPLE, len(every)))
    sample = [each for each in drawn if each.is_program]
    if not sample:
        print(f"mutants of changed lines: none since {base[:10]}")
        return
    tests = measured(tests_of(sample), fresh=False, within_seconds=_MEASURE_SECONDS)
    left = _BEGIN_SECONDS - (time.monotonic() - start)
    settings = Settings(patience_seconds=_PATIENCE_SECONDS, jobs=2, stop_seconds=left, hung_seconds=8.0)
    results = run_trials(sample, tests=tests, settings=settings, tell=_print_result)
    # A function that none of the measured tests executes may have its test elsewhere.
    tried = Counter(each.outcome for each in results if each.outcome is not Outcome.UNREACHED)
    found = tried.total() - tried[Outcome.SURVIVED]
    print(f"mutants of changed lines: {len(every)} since {base[:10]}, {tried.total()} tried, {found} found")


def _print_result(result: Result[Mutant]) -> None:
    if result.outcome is Outcome.SURVIVED:
        mutant = result.mutant
        print(f"not found: {mutant.path.relative_to(Path.cwd())}:{mutant.line}  {mutant.change}")


if __name__ == "__main__":
    main()
