"""What calls a function in its job, in a process of its own and in this one, and what comes back by file and log."""

import asyncio
import base64
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

import cloudpickle
import msgspec
import pytest

from dovetail.sdk import FunctionFailedError
from dovetail.sdk.functions import outcomes, packing, runner, travel
from dovetail.sdk.functions.outcomes import Outcome

SOURCE = Path(runner.__file__).read_text(encoding="utf-8")


def packed(function: Callable[..., Any], *arguments: Any, along: bool = True, **named: Any) -> bytes:
    return packing.pack(function, calls=[(arguments, named)], along=along)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SOURCE, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=60,
    )


def here(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The runner in this process; what it imports, and where it prints, is put back."""
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryFile() as printed,
        os.fdopen(os.dup(printed.fileno()), "w", encoding="utf-8") as stdout,
    ):
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", io.StringIO())
        for name in ("cloudpickle", "cloudpickle.cloudpickle"):
            patch.setitem(sys.modules, name, sys.modules[name])
        for name in ("DOVETAIL_ARRAY_TASK_ID", "RANK"):
            patch.setenv(name, "")
        for name, value in environment.items():
            patch.setenv(name, value)
        kept = os.dup(1)
        os.dup2(printed.fileno(), 1)
        try:
            code = runner.main([*words])
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        printed.seek(0)
        return subprocess.CompletedProcess(words, code, stdout=printed.read().decode(), stderr="")


Run = Callable[..., subprocess.CompletedProcess[str]]
RUNS = {"a process of its own": run, "this process": here}


@pytest.fixture(params=RUNS)
def either(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


def in_folder(folder: Path, data: bytes, *, by: Run = here, **environment: str) -> Outcome:
    (folder / "call").write_bytes(data)
    by(str(folder), **environment)
    name = f"outcome-{environment.get('DOVETAIL_ARRAY_TASK_ID', 0)}-{environment.get('RANK', 0)}"
    return outcomes.read((folder / name).read_bytes())


def by_log(data: bytes, *, by: Run = here) -> tuple[int, Outcome | None]:
    sent = travel.send(data, data=None, python=None)
    done = by(*sent.command[3:])
    return done.returncode, outcomes.in_log(["noise", *done.stdout.splitlines()], word=sent.word)


def problem_of(data: bytes) -> FunctionFailedError:
    code, found = by_log(data)
    assert code == 1
    assert found is not None
    with pytest.raises(FunctionFailedError) as raised:
        found.value(of="job 7")
    return raised.value


def raise_it(text: str) -> None:
    raise KeyError(text)


def interrupt() -> None:
    raise KeyboardInterrupt


class OddError(Exception):
    """An exception whose pickle cannot be read: its `__init__` takes other arguments than it passes on."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.hint = hint


def odd() -> None:
    raise OddError(7, hint="lower lr")


class CodeError(Exception):
    """An exception whose pickle says something else: its `__init__` makes a sentence of its argument."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def coded() -> None:
    raise CodeError(7)


async def soon(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_an_exception_with_arguments_of_its_own_comes_back_as_it_was(either: Run) -> None:
    found = by_log(packed(odd), by=either)[1]
    assert found is not None
    with pytest.raises(OddError, match="code 7") as raised:
        found.value(of="job 7")
    assert (raised.value.code, raised.value.hint) == (7, "lower lr")
    assert isinstance(raised.value.__cause__, FunctionFailedError)


def test_an_exception_that_makes_its_own_sentence_comes_back_with_it() -> None:
    found = by_log(packed(coded))[1]
    assert found is not None
    with pytest.raises(CodeError) as raised:
        found.value(of="job 7")
    assert (str(raised.value), raised.value.code) == ("code 7", 7)


def test_a_coroutine_function_runs_to_its_value() -> None:
    found = by_log(packed(soon, 3))[1]
    assert found is not None
    assert found.value(of="job 7") == 3


def test_a_value_comes_back_by_a_file_and_by_the_log(tmp_path: Path, either: Run) -> None:
    data = packed(lambda a, *, b: {"sum": a + b}, 2, b=5)
    assert in_folder(tmp_path, data, by=either).value(of="job 1") == {"sum": 7}
    code, found = by_log(data, by=either)
    assert found is not None
    assert (code, found.value(of="job 1")) == (0, {"sum": 7})
    assert (tmp_path / "outcome-0-0").stat().st_mode & 0o077 == 0


def test_a_call_that_is_gone_is_said_in_one_line(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "dovetail: the call was deleted when its result was read: submit it again, with key= to keep it\n"
    )


def test_a_value_of_many_lines_comes_back_whole() -> None:
    text = "".join(map(str, range(20_000)))
    assert by_log(packed(lambda: text))[1].value(of="job 1") == text  # type: ignore[union-attr] # it is there


def test_what_the_function_raises_is_raised_with_its_traceback(either: Run) -> None:
    code, found = by_log(packed(raise_it, "lr"), by=either)
    assert code == 1
    assert found is not None
    with pytest.raises(KeyError, match="lr") as raised:
        found.value(of="job 7")
    cause = raised.value.__cause__
    assert isinstance(cause, FunctionFailedError)
    assert "in raise_it" in cause.traceback
    assert str(cause).startswith("job 7: KeyError: 'lr'")


def test_each_task_of_a_map_reads_its_own_arguments(tmp_path: Path) -> None:
    calls: list[packing.Arguments] = [((each,), {}) for each in ("a", "bb", "ccc")]
    for count in (1, 2, 3):
        data = packing.pack(len, calls=calls[:count], along=False)
        for task in range(count):
            assert in_folder(tmp_path, data, DOVETAIL_ARRAY_TASK_ID=str(task)).value(of="job 1") == task + 1


def test_a_function_that_is_one_call_has_its_arguments_in_any_task(tmp_path: Path) -> None:
    assert in_folder(tmp_path, packed(len, "abc"), DOVETAIL_ARRAY_TASK_ID="5").value(of="job 1") == 3


def submit(text: str) -> bytes:
    return packing.pack(len, calls=[((text,), {})], along=False)


def test_a_function_may_submit_another_one_from_its_job() -> None:
    found = by_log(packed(submit, "abc"))[1]
    assert found is not None
    inner = by_log(found.value(of="job 7"))[1]
    assert inner is not None
    assert inner.value(of="job 8") == 3


def test_the_path_of_imports_is_that_of_the_submission_and_each_folder_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "mine")
    (tmp_path / "import_path.py").write_text("import sys\ndef found():\n    return sys.path\n")
    monkeypatch.syspath_prepend(tmp_path)
    import import_path  # type: ignore[import-not-found] # just written

    found = in_folder(tmp_path, packed(import_path.found, along=False), by=run).value(of="job 1")
    assert str(tmp_path / "mine") in found
    own = str(Path(os.__file__).parent)
    assert found.count(own) == 1
    # A module of the submission's folder may have the name of an installed one.
    assert found.index(str(tmp_path / "mine")) < found.index(own)


def test_each_worker_of_a_gang_has_its_own_outcome(tmp_path: Path) -> None:
    data = packed(lambda: os.environ["RANK"])
    assert in_folder(tmp_path, data, RANK="3").value(of="job 1") == "3"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (packed(lambda: (x for x in "ab")), "its result, a generator, cannot be pickled: TypeError"),
        (packed(lambda: b"x" * 2_000_000), "its result has 20000.. bytes, and at most 1048576 come back by the log"),
        (packed(lambda: 1).replace(b'"python":[3,', b'"python":[4,'), "was sent from Python 4.*, and the job runs"),
        (packed(lambda: sys.exit("gone")), "job 7: SystemExit: gone\n"),
        (packed(interrupt), "job 7: KeyboardInterrupt: \n"),
    ],
)
def test_without_a_value_the_reason_comes_back(data: bytes, problem: str) -> None:
    # Also for what would end the process that asks, such as SystemExit.
    assert re.search(problem, str(problem_of(data)))


class WordlessError(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise ValueError("no words")


class UnreducedError(Exception):
    """An exception that refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("never")


class WordlessValue:
    """A value that is not pickled, for a reason without a text."""

    def __reduce__(self) -> Any:
        raise WordlessError


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (WordlessError(), "WordlessError: (its text cannot be read: ValueError)"),
        (ValueError("a\udcffb"), "ValueError: a\\udcffb"),
    ],
)
def test_an_error_whose_text_cannot_be_read_comes_back_all_the_same(
    tmp_path: Path, error: Exception, text: str
) -> None:
    data = packed(raising(error))
    for found in (in_folder(tmp_path, data), by_log(data)[1]):
        assert found is not None
        assert (found.kind, found.text) == ("error", text)
        assert "in fail" in found.traceback
        with pytest.raises(type(error)):
            found.value(of="job 7")


def test_a_value_that_cannot_be_pickled_for_no_known_reason_is_named() -> None:
    said = problem_of(packed(WordlessValue)).problem
    assert (
        said == "its result, a WordlessValue, cannot be pickled: WordlessError: (its text cannot be read: ValueError)"
    )


def test_an_error_that_refuses_to_be_pickled_comes_back_as_it_was() -> None:
    def fail() -> None:
        raise UnreducedError("lr", 7)

    found = by_log(packed(fail))[1]
    assert found is not None
    with pytest.raises(UnreducedError) as raised:
        found.value(of="job 7")
    assert raised.value.args == ("lr", 7)


def test_an_error_that_is_too_large_for_the_log_comes_back_as_its_beginning_and_end() -> None:
    def fail() -> None:
        raise ValueError("a" + "x" * 5_000_000 + "z")

    sent = travel.send(packed(fail), data=None, python=None)
    printed = here(*sent.command[3:]).stdout
    found = outcomes.in_log(printed.splitlines(), word=sent.word)
    assert found is not None
    assert (found.kind, found.text[:13], found.text[-2:]) == ("error", "ValueError: a", "xz")
    assert "in fail" in found.traceback
    assert len(printed) < runner.MOST_PRINTED_BYTES
    with pytest.raises(FunctionFailedError, match=r"job 7: ValueError: ax+ \[\.\.\.\] x+z"):
        found.value(of="job 7")


def test_an_error_with_what_cannot_be_pickled_comes_back_as_a_sentence() -> None:
    def fail() -> None:
        raise ValueError(Lock())

    assert problem_of(packed(fail)).problem.startswith("ValueError: <unlocked _thread.lock")


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError])
def test_what_would_end_an_iteration_or_a_task_here_is_raised_as_a_failure(error: type[BaseException]) -> None:
    assert problem_of(packed(raising(error()))).problem == f"{error.__name__}: "


def test_a_function_that_ends_its_process_well_has_no_value_and_no_error() -> None:
    code, found = by_log(packed(lambda: sys.exit(0)))
    assert found is not None
    assert (code, found.value(of="job 7")) == (0, None)


def forks(code: int) -> str:
    child = os.fork()
    if child == 0:
        return "of the child"
    os.waitpid(child, 0)
    os._exit(code)


def test_a_process_that_a_function_forks_has_no_outcome_of_its_own(tmp_path: Path) -> None:
    assert by_log(packed(forks, 9), by=run) == (9, None)
    with pytest.raises(FileNotFoundError):
        in_folder(tmp_path, packed(forks, 9), by=run)


def of_worker_9() -> int:
    os.environ.update(RANK="9", DOVETAIL_ARRAY_TASK_ID="9")
    return 7


def test_a_function_may_set_the_variables_of_frameworks(tmp_path: Path) -> None:
    assert in_folder(tmp_path, packed(of_worker_9), RANK="3").value(of="job 7") == 7


def begin_a_line() -> int:
    print("progress 3/3", end="")
    return 7


def lose_output() -> int:
    sys.stdout = sys.stderr = None
    return 7


def close_output() -> int:
    sys.stdout.close()
    return 7


def take_output() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = io.StringIO()
    return 7


def close_files() -> int:
    os.closerange(3, 64)
    return 7


def take_files() -> int:
    close_files()
    for _ in range(8):
        os.open(os.devnull, os.O_WRONLY)
    return 7


@pytest.mark.parametrize("function", [close_files, take_files])
def test_a_function_may_close_what_it_has_not_opened(tmp_path: Path, function: Callable[[], int]) -> None:
    data = packed(function)
    for found in (in_folder(tmp_path, data, by=run), by_log(data, by=run)[1]):
        assert found is not None
        assert found.value(of="job 7") == 7


@pytest.mark.parametrize("function", [begin_a_line, lose_output, close_output, take_output])
def test_whatever_a_function_does_to_its_output_its_value_comes_back(function: Callable[[], int]) -> None:
    found = by_log(packed(function))[1]
    assert found is not None
    assert found.value(of="job 7") == 7


def fail_without_output() -> None:
    sys.stdout = sys.stderr = None
    raise KeyError("lr")


def test_without_an_output_an_error_comes_back_with_its_traceback() -> None:
    found = by_log(packed(fail_without_output))[1]
    assert found is not None
    assert found.text == "KeyError: 'lr'"
    assert "in fail_without_output" in found.traceback


def test_a_module_that_ends_its_process_is_named() -> None:
    class Script:
        def __reduce__(self) -> tuple[Any, ...]:
            return sys.exit, (2,)

    assert problem_of(packed(len, Script())).problem == "the function cannot be read in the job: SystemExit: 2"


def test_a_module_that_the_job_lacks_is_named() -> None:
    class Away:
        def __reduce__(self) -> tuple[Any, ...]:
            return __import__, ("no_such_module",)

    found = by_log(packed(len, Away()))[1]
    assert found is not None
    with pytest.raises(FunctionFailedError, match="cannot be read in the job: ModuleNotFoundError"):
        found.value(of="job 7")


class Hostile:
    """What runs code where it is read."""

    def __reduce__(self) -> Any:
        return os.putenv, ("HOSTILE", "1")


def print_and_die(data: str) -> None:
    print(data, flush=True)
    os._exit(9)


def test_data_that_a_function_prints_are_no_outcome_of_it() -> None:
    """A function prints what others have written, such as texts of a data set, and is then killed."""
    forged = base64.b64encode(msgspec.json.encode({"kind": "value"}) + b"\n" + cloudpickle.dumps(Hostile())).decode()
    others = travel.send(packed(len, "abc"), data=None, python=None).word
    lines = [f"{runner.MARK} {before}1/1 {forged}" for before in ("", "- ", "ab12 ", f"{others} ")]
    assert by_log(packed(print_and_die, "\n".join(lines)), by=run) == (9, None)
