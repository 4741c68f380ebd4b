"""``make mutants``: the share of mutants that the tests find, package by package."""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.catalogue import Mutant, modules_of, mutants_of
from tools.mutants.packages import PACKAGES, folder_of
from tools.mutants.reach import measured
from tools.mutants.trials import Outcome, Result, Settings, run_trials

_RESULTS = Path("out/mutants")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("package", nargs="*", default=PACKAGES, help="packages or modules by their dotted names")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="mutants of each package; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--tests", nargs="+", help="folders or files of tests; default: the deployable's")
    parser.add_argument("--patience", type=float, default=8, help="CPU seconds of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--again", action="store_true", help="only the survivors of the last run")
    parser.add_argument("--fresh", action="store_true", help="measure anew which tests execute which functions")
    return parser.parse_args()


def main() -> int:
    options = _options()
    settings = Settings(patience_seconds=options.patience, jobs=options.jobs)
    for package in options.package:
        written = _RESULTS / f"{package}.json"
        before = _read(written) if options.again else []
        survivors = [each for each in before if _survived(each)]
        every = [mutant for name, path in modules_of(package) for mutant in mutants_of(name, path=path)]
        chosen = (
            _those(every, rows=survivors) if options.again else _sample(every, size=options.sample, seed=options.seed)
        )
        mutants = [each for each in chosen if each.is_program]
        tests = measured(options.tests or [folder_of(package)], fresh=options.fresh)
        print(f"{package}: {len(mutants)} mutants, {len(tests)} tests", flush=True)
        results = run_trials(mutants, tests=tests, settings=settings, tell=_print_result)
        # A survivor that is no mutant any more, for its line has changed, is left out.
        rows = {each["id"]: each for each in before if not _survived(each)}
        rows |= {each.mutant.identity: _row(each) for each in results}
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(list(rows.values()), indent=1))
        _table(package, rows=list(rows.values()))
    return 0


def _sample(every: Sequence[Mutant], *, size: int, seed: int) -> Sequence[Mutant]:
    if not size or size >= len(every):
        return every
    return sorted(random.Random(seed).sample(every, size), key=lambda each: (each.module, each.line))


def _those(every: Sequence[Mutant], *, rows: Sequence[dict[str, object]]) -> Sequence[Mutant]:
    """The mutants of these rows of a result."""
    wanted = {each["id"] for each in rows}
    places = {(each["module"], each["function"], each["operator"]) for each in rows}
    likely = [each for each in every if (each.module, each.function, each.operator) in places]
    return [each for each in likely if each.is_program and each.identity in wanted]


def _survived(row: dict[str, object]) -> bool:
    return row["outcome"] in (Outcome.SURVIVED, Outcome.UNREACHED)


def _read(path: Path) -> list[dict[str, object]]:
    return list(json.loads(path.read_text())) if path.exists() else []


def _row(result: Result[Mutant]) -> dict[str, object]:
    mutant = result.mutant
    return {
        "id": mutant.identity,
        "module": mutant.module,
        "function": mutant.function,
        "line": mutant.line,
        "operator": mutant.operator,
        "change": mutant.change,
        "outcome": result.outcome,
        "test": result.test,
    }


def _print_result(result: Result[Mutant]) -> None:
    if result.outcome in (Outcome.SURVIVED, Outcome.UNREACHED):
        mutant = result.mutant
        print(f"{result.outcome} {mutant.module}:{mutant.line} {mutant.function} {mutant.operator}")
        print(f"    {mutant.change}", flush=True)


def _table(package: str, *, rows: Sequence[dict[str, object]]) -> None:
    killed = sum(not _survived(row) for row in rows)
    print(f"| {package} | {len(rows)} mutants | {killed} killed | {killed / max(1, len(rows)):.0%} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
