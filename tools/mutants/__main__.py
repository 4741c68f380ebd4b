"""``make mutants``: the share of mutants that the tests find, package by package."""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.catalogue import Mutant, modules_of, mutants_of
from tools.mutants.reach import measured
from tools.mutants.trials import Outcome, Result, Settings, run_trials

_RESULTS = Path("out/mutants")
_TESTS = {
    "dovetail": "tests/core",
    "dovetail_operator": "tests/operator_",
    "dovetail_extender": "tests/extender",
    "dovetail_agent": "tests/agent",
    "dovetail_cli": "tests/cli",
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("package", nargs="+", help="packages or modules by their dotted names")
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
    settings = Settings(patience_seconds=options.patience, jobs=options.jobs, stop_seconds=float("inf"))
    for package in options.package:
        mutants = _chosen(package, sample=options.sample, seed=options.seed)
        written = _RESULTS / f"{package}.json"
        before = _read(written)
        if options.again:
            open_ones = {each["id"] for each in before if each["outcome"] in (Outcome.SURVIVED, Outcome.UNREACHED)}
            mutants = [each for each in mutants if each.identity in open_ones]
        tests = measured(options.tests or [_TESTS[package.partition(".")[0]]], fresh=options.fresh)
        print(f"{package}: {len(mutants)} mutants, {len(tests)} tests", flush=True)
        results = run_trials(mutants, tests=tests, settings=settings, tell=_tell)
        rows = {each["id"]: each for each in before} if options.again else {}
        rows |= {each.mutant.identity: _row(each) for each in results}
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(list(rows.values()), indent=1))
        _table(package, rows=list(rows.values()))
    return 0


def _chosen(package: str, *, sample: int, seed: int) -> Sequence[Mutant]:
    every = [mutant for name, path in modules_of(package) for mutant in mutants_of(name, path)]
    if not sample or sample >= len(every):
        return every
    return sorted(random.Random(seed).sample(every, sample), key=lambda each: (each.module, each.line))


def _read(path: Path) -> list[dict[str, object]]:
    return list(json.loads(path.read_text())) if path.exists() else []


def _row(result: Result) -> dict[str, object]:
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


def _tell(result: Result) -> None:
    if result.outcome in (Outcome.SURVIVED, Outcome.UNREACHED):
        mutant = result.mutant
        print(f"{result.outcome} {mutant.module}:{mutant.line} {mutant.function} {mutant.operator}")
        print(f"    {mutant.change}", flush=True)


def _table(package: str, *, rows: Sequence[dict[str, object]]) -> None:
    killed = sum(row["outcome"] in (Outcome.KILLED, Outcome.TIMEOUT) for row in rows)
    print(f"| {package} | {len(rows)} mutants | {killed} killed | {killed / max(1, len(rows)):.0%} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
