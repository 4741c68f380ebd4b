"""Which tests execute which functions, measured with coverage.py and kept per test file."""

import ast
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest

_KEPT = Path("out/mutants/reach.json")
_SELECT = ["-m", "not cluster and not slow and not realnode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One test: what it executes, and for how long.

    seconds: of CPU, so that a busy machine changes nothing.
    functions: ``path:qualified name`` of the outermost functions.
    """

    name: str
    seconds: float
    functions: frozenset[str]

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


def measured(folders: Sequence[str], *, fresh: bool, within_seconds: float = float("inf")) -> Sequence[Test]:
    """The tests of these folders; files that have changed since the last measurement are run again.

    What could not be run `within_seconds` is left out, and not kept.
    """
    kept = {} if fresh or not _KEPT.exists() else json.loads(_KEPT.read_text())
    files = {str(path): _digest(path) for folder in folders for path in _test_files(Path(folder))}
    missing = [path for path, digest in files.items() if kept.get(path, {}).get("digest") != digest]
    if missing:
        print(f"measuring which functions {len(missing)} test files execute", flush=True)
        _KEPT.parent.mkdir(parents=True, exist_ok=True)
        for path, tests in _measure(missing, within_seconds=within_seconds).items():
            # A measurement that was interrupted has nothing on some files.
            if tests:
                kept[path] = {"digest": files[path], "tests": tests}
        if within_seconds == float("inf"):
            _KEPT.write_text(json.dumps(kept))
    return [
        Test(name=name, seconds=seconds, functions=frozenset(functions))
        for path in files
        for name, (seconds, functions) in kept.get(path, {"tests": {}})["tests"].items()
    ]


def _test_files(folder: Path) -> Iterable[Path]:
    return [folder] if folder.is_file() else sorted(folder.rglob("test_*.py"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _measure(files: Sequence[str], *, within_seconds: float) -> Mapping[str, Mapping[str, tuple[float, Sequence[str]]]]:
    """In a process of its own: coverage has to begin before the first import."""
    answer = _KEPT.with_suffix(".new.json")
    command = [sys.executable, "-m", "tools.mutants.reach", str(answer), str(within_seconds), *files]
    subprocess.run(command, check=True)
    found: dict[str, dict[str, tuple[float, Sequence[str]]]] = {path: {} for path in files}
    for name, each in json.loads(answer.read_text()).items():
        found[name.partition("::")[0]][name] = each
    answer.unlink()
    return found


class _Watch:
    """Gives each test a context of its own, and notes its CPU time. No test begins after `within_seconds`."""

    def __init__(self, measurement: coverage.Coverage, *, within_seconds: float) -> None:
        self._measurement = measurement
        self._end = time.monotonic() + within_seconds
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if time.monotonic() > self._end:
            item.session.shouldstop = "the time for measuring is over"
        self._measurement.switch_context(item.nodeid)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - start

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)


def _record(answer: Path, *, files: Sequence[str], within_seconds: float) -> None:
    measurement = coverage.Coverage(data_file=None, config_file=False, source=_roots())
    measurement.set_option("run:disable_warnings", ["module-not-measured", "no-data-collected", "no-sysmon"])
    measurement.start()
    watch = _Watch(measurement, within_seconds=within_seconds)
    options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", *_SELECT]
    if within_seconds != float("inf"):
        options += ["--timeout", str(within_seconds / 4)]
    pytest.main([*options, *files], plugins=[watch])
    measurement.stop()
    executed: dict[str, set[str]] = {}
    data = measurement.get_data()
    for path in data.measured_files():
        relative = str(Path(path).relative_to(Path.cwd()))
        function_at = _function_at(Path(path))
        for line, contexts in data.contexts_by_lineno(path).items():
            if line in function_at:
                for context in contexts:
                    executed.setdefault(context, set()).add(f"{relative}:{function_at[line]}")
    passed = {
        name: (round(seconds, 3), sorted(executed.get(name, ())))
        for name, seconds in watch.seconds.items()
        if name not in watch.failed
    }
    answer.write_text(json.dumps(passed))


def _roots() -> Sequence[str]:
    return sorted({str(path.parent.parent) for path in Path().glob("*/dovetail*/__init__.py")})


def _function_at(path: Path) -> Mapping[int, str]:
    return dict(_lines(ast.parse(path.read_text()), within=""))


def _lines(tree: ast.AST, *, within: str) -> Iterator[tuple[int, str]]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for line in range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1):
                    yield line, within + node.name
            case ast.ClassDef():
                yield from _lines(node, within=f"{within}{node.name}.")
            case _:
                yield from _lines(node, within=within)


if __name__ == "__main__":
    _record(Path(sys.argv[1]), files=sys.argv[3:], within_seconds=float(sys.argv[2]))
