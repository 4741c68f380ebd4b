"""Tries mutants one by one: each in a fork of a pytest session that has collected every test."""

import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pytest

from tools.mutants.catalogue import MODULE_LEVEL
from tools.mutants.reach import Test
from tools.mutants.swap import Living, Mutated, living_functions, swap

_MEMORY_BYTES = 6 << 30  # a mutant that appends for ever ends before the machine does
_KILLED, _SURVIVED, _IN_PLACE_IMPOSSIBLE = 1, 0, 3


class Outcome(StrEnum):
    """What the tests said of a mutant."""

    KILLED = "killed"
    TIMEOUT = "timeout"  # the tests hung: counts as killed
    SURVIVED = "survived"
    UNREACHED = "unreached"  # no test executes the function: counts as survived


class Bug(Protocol):
    """A module with a bug in it."""

    @property
    def module(self) -> str:
        """The dotted name of the module."""

    @property
    def path(self) -> Path:
        """Its file."""

    @property
    def functions(self) -> frozenset[str]:
        """Qualified names of the outermost functions that differ, or `MODULE_LEVEL` alone for what is outside."""

    @property
    def source(self) -> str:
        """The module with the bug."""


BugT = TypeVar("BugT", bound=Bug)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[BugT]):
    """A mutant and what the tests said of it; `test` is the first that failed."""

    mutant: BugT
    outcome: Outcome
    test: str = ""


@dataclass(slots=True, kw_only=True)
class _Running(Generic[BugT]):
    mutant: BugT
    tests: Sequence[Test]
    process: int
    output: int
    deadline: float
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """patience_seconds: CPU time of the tests that one mutant gets, the quickest first.

    stop_seconds: no further mutant begins after that much time.
    hung_seconds: what a mutant may take beyond six times the CPU time of its tests before it counts as hung.
    """

    patience_seconds: float
    jobs: int
    stop_seconds: float = float("inf")
    hung_seconds: float = 20.0


def tests_for(mutant: Bug, *, tests: Sequence[Test], patience_seconds: float) -> Sequence[Test]:
    """The tests that execute the mutated function, the quickest first, within the patience."""
    path = str(mutant.path.relative_to(Path.cwd()))
    if MODULE_LEVEL in mutant.functions:
        reaching = [test for test in tests if any(each.startswith(f"{path}:") for each in test.functions)]
        reaching = reaching or list(_importing(mutant.module, tests=tests))
    else:
        changed = {f"{path}:{function}" for function in mutant.functions}
        reaching = [test for test in tests if changed & test.functions]
    chosen: list[Test] = []
    spent = 0.0
    for test in sorted(reaching, key=lambda each: each.seconds):
        spent += test.seconds
        if chosen and spent > patience_seconds:
            break
        chosen.append(test)
    return chosen


def _importing(module: str, *, tests: Sequence[Test]) -> Sequence[Test]:
    """Tests of a module without functions: those of the files that name it."""
    package = module.rpartition(".")[0]
    files = {test.file for test in tests}
    naming = {file for file in files if module in (text := Path(file).read_text()) or f"from {package} import" in text}
    return [test for test in tests if test.file in naming]


class Session(Generic[BugT]):
    """A pytest plugin: instead of the tests, it runs the trials."""

    def __init__(
        self,
        mutants: Sequence[BugT],
        *,
        tests: Sequence[Test],
        settings: Settings,
        tell: Callable[[Result[BugT]], None],
    ) -> None:
        self._waiting = list(reversed(mutants))
        self._tests = tests
        self._settings = settings
        self._tell = tell
        self._running: list[_Running[BugT]] = []
        self._items: Mapping[str, pytest.Item] = {}
        self._living: Living = {}
        self._sound: dict[str, bool] = {}
        self._report: int | None = None
        self.results: list[Result[BugT]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._living = living_functions()
        gc.collect()
        gc.freeze()  # a fork's collector leaves the shared pages alone
        start = time.monotonic()
        while self._running or self._waiting:
            late = time.monotonic() - start > self._settings.stop_seconds
            if late:
                self._waiting.clear()
            if self._waiting and len(self._running) < self._settings.jobs:
                self._begin(self._waiting.pop(), in_place=True)
            else:
                self._look()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._report is not None:
            os.write(self._report, report.nodeid.encode())
            os._exit(_KILLED)

    def _begin(self, mutant: BugT, *, in_place: bool) -> None:
        reaching = tests_for(mutant, tests=self._tests, patience_seconds=self._settings.patience_seconds)
        tests = [test for test in reaching if test.name in self._items and self._sound.get(test.name, True)]
        if not tests:
            self._note(Result(mutant=mutant, outcome=Outcome.UNREACHED))
            return
        in_place = in_place and MODULE_LEVEL not in mutant.functions
        folder = tempfile.mkdtemp(prefix="mutant-")
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            self._try(mutant, tests=tests, in_place=in_place, folder=folder, report=writing)
        os.close(writing)
        seconds = self._settings.hung_seconds + 6 * sum(test.seconds for test in tests)
        self._running.append(
            _Running(
                mutant=mutant,
                tests=tests,
                process=process,
                output=reading,
                deadline=time.monotonic() + seconds,
                folder=folder,
            )
        )

    def _try(self, mutant: BugT, *, tests: Sequence[Test], in_place: bool, folder: str, report: int) -> None:
        """In the fork. Ends the process."""
        try:
            _apart(folder)
            if not in_place:
                _import_again(mutant, tests=tests, report=report)
            if not swap(path=mutant.path, mutated=mutant.source, living=self._living):
                os._exit(_IN_PLACE_IMPOSSIBLE)
            self._report = report
            self._run_tests(tests)
        except BaseException as error:  # noqa: BLE001 - whatever a mutant does is a kill
            os.write(report, repr(error)[:200].encode())
            os._exit(_KILLED)
        os._exit(_SURVIVED)

    def _run_tests(self, tests: Sequence[Test]) -> None:
        items = [self._items[test.name] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)

    def _look(self) -> None:
        time.sleep(0.005)
        for each in list(self._running):
            ended, status = os.waitpid(each.process, os.WNOHANG)
            hung = not ended and time.monotonic() > each.deadline
            if not ended and not hung:
                continue
            self._running.remove(each)
            test = _clear_away(each, hung=hung)
            if hung:
                self._note(Result(mutant=each.mutant, outcome=Outcome.TIMEOUT))
            else:
                self._judge(each, code=os.waitstatus_to_exitcode(status), test=test)

    def _judge(self, ended: _Running[BugT], *, code: int, test: str) -> None:
        if code == _IN_PLACE_IMPOSSIBLE:
            self._begin(ended.mutant, in_place=False)
        elif code == _SURVIVED:
            self._note(Result(mutant=ended.mutant, outcome=Outcome.SURVIVED))
        elif test in self._items and not self._is_sound(test):
            self._begin(ended.mutant, in_place=True)
        else:
            self._note(Result(mutant=ended.mutant, outcome=Outcome.KILLED, test=test))

    def _is_sound(self, test: str) -> bool:
        """Whether a test passes in a fork without a mutant: one that does not kills nothing."""
        if test not in self._sound:
            process = os.fork()
            if process == 0:
                folder = tempfile.mkdtemp(prefix="mutant-")
                _apart(folder)
                self._report = os.open(os.devnull, os.O_WRONLY)
                self._run_tests([Test(name=test, seconds=0, functions=frozenset())])
                os._exit(_SURVIVED)
            self._sound[test] = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == _SURVIVED
        return self._sound[test]

    def _note(self, result: Result[BugT]) -> None:
        self.results.append(result)
        self._tell(result)


def _apart(folder: str) -> None:
    """A process group, a folder and a limit of its own; silent."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
    tempfile.tempdir = folder


def _clear_away(ended: _Running[BugT], *, hung: bool) -> str:
    with suppress(ProcessLookupError):
        os.killpg(ended.process, signal.SIGKILL)
    if hung:
        os.waitpid(ended.process, 0)
    with os.fdopen(ended.output) as output:
        test = output.read()
    shutil.rmtree(ended.folder, ignore_errors=True)
    return test


def _import_again(mutant: Bug, *, tests: Sequence[Test], report: int) -> None:
    """In the fork. Becomes a process in which nothing has been imported yet."""
    task = {
        "module": mutant.module,
        "path": str(mutant.path),
        "source": mutant.source,
        "tests": [test.name for test in tests],
        "report": report,
    }
    written = Path(os.environ["TMPDIR"]) / "task.json"
    written.write_text(json.dumps(task))
    os.set_inheritable(report, True)
    os.execv(sys.executable, [sys.executable, "-m", "tools.mutants.trials", str(written)])


class _FirstFailure:
    def __init__(self, report: int) -> None:
        self._report = report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._report, report.nodeid.encode())


def _tried_by_import(written: Path) -> int:
    task = json.loads(written.read_text())
    Mutated(task["module"], path=Path(task["path"]), source=task["source"]).install()
    status = pytest.main(["-x", *PYTEST_OPTIONS, *task["tests"]], plugins=[_FirstFailure(task["report"])])
    return _SURVIVED if status == pytest.ExitCode.OK else _KILLED


PYTEST_OPTIONS = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "--capture=no"]


def run_trials(
    mutants: Sequence[BugT], *, tests: Sequence[Test], settings: Settings, tell: Callable[[Result[BugT]], None]
) -> Sequence[Result[BugT]]:
    """Try every mutant. Raises RuntimeError when the tests cannot be collected."""
    chosen = {
        test.file
        for each in mutants
        for test in tests_for(each, tests=tests, patience_seconds=settings.patience_seconds)
    }
    session = Session(mutants, tests=tests, settings=settings, tell=tell)
    status = pytest.main([*PYTEST_OPTIONS, *sorted(chosen)], plugins=[session])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest ended with {status!r} before the trials")
    return session.results


if __name__ == "__main__":
    os._exit(_tried_by_import(Path(sys.argv[1])))
