"""Functions as jobs without a cluster: what is refused, what is packed, how it travels, and what the log has."""

import base64
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import cloudpickle
import msgspec
import pytest

from dovetail.sdk import Executor, FunctionFailedError, specs
from dovetail.sdk.blocking.functions import MappedCall
from dovetail.sdk.errors import InvalidError, UnreachableError
from dovetail.sdk.functions import outcomes, packing, runner, travel
from dovetail.sdk.functions.outcomes import Outcome
from dovetail.sdk.specs import JobOptions
from tests.sdk.test_runner import by_log, packed


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"gpus": 1}, 'gpus: no such option; did you mean "gpu"?'),
        ({"nodes_of": 1}, "nodes_of: no such option; there are image, gpu, name, "),
        ({"retries": -1}, "retries -1: a whole number from 0 to 1000"),
        ({"workers": 0}, "workers 0: a whole number from 1 to 1024"),
        ({"priority": True}, "priority True: a whole number from 0 to 255"),
        ({"answer_seconds": 11}, "answer_seconds 11: a whole number from 0 to 10"),
        ({"answer_seconds": None}, "answer_seconds None: a whole number from 0 to 10"),
        ({"time_limit_seconds": "10m"}, "time_limit_seconds '10m': a whole number from 1 to 2147483647"),
        ({"depends_on": "train"}, 'depends_on "train": a list of jobs or of their names, such as ["train"]'),
        ({"environment": {"N": 1}}, 'environment N 1: a text, such as "1"'),
        ({"environment": ["N=1"]}, "environment ['N=1']: names with their texts, such as {"),
    ],
)
def test_an_option_that_no_job_can_have_is_refused_before_it_is_sent(options: JobOptions, problem: str) -> None:
    with pytest.raises(InvalidError) as refused:
        specs.asked(["true"], options=options)
    assert str(refused.value).startswith(problem)


def test_options_with_values_of_the_types_that_people_use_are_taken() -> None:
    options: JobOptions = {"depends_on": {"a"}, "workers": 1024, "retries": 0, "time_limit_seconds": None}  # type: ignore[typeddict-item] # a set is one
    found = specs.asked(["true"], options=options)
    assert (found["dependencies"], found["workers"], found["backoffLimit"]) == ([{"name": "a"}], 1024, 0)
    assert "activeDeadlineSeconds" not in found


def test_with_a_key_the_same_call_is_the_same_request_and_another_one_is_not() -> None:
    """A gateway gives the job again for an equal body, and refuses the key for another one."""
    data, other = packed(len, "abc"), packed(len, "ab")
    asked = [(data, "run-1"), (data, "run-2"), (other, "run-1"), (data, None), (data, None)]
    first, *others = [travel.send(each, data=None, python=None, key=key) for each, key in asked]
    assert travel.send(data, data=None, python=None, key="run-1") == first
    assert len({each.word for each in (first, *others)}) == 5


def test_with_a_key_the_same_call_is_the_same_request_on_ones_own_machine_too(tmp_path: Path) -> None:
    data, other = packed(len, "abc"), packed(len, "ab")
    asked = [(data, "run-1"), (data, "run-1"), (data, "run-2"), (other, "run-1"), (data, None), (data, None)]
    first, again, *others = [travel.send(each, data=tmp_path, python=None, key=key) for each, key in asked]
    assert (again, first.new, again.new) == (first, True, False)
    assert len({each.command for each in (first, *others)}) == 5
    assert len(list(tmp_path.glob("calls/*"))) == len(list(tmp_path.glob("environments/*"))) == 5


@pytest.mark.parametrize("key", ["", 7, b"run-1"])
def test_a_key_is_a_text(key: Any) -> None:
    with pytest.raises(InvalidError, match=r"^key .*: a text, such as"):
        specs.checked_key(key)
    assert (specs.checked_key("run-1"), specs.checked_key(None)) == ("run-1", None)


@pytest.mark.parametrize("number", [0, -1, True, 1.5, None])
def test_the_number_of_a_job_is_at_least_one(number: Any) -> None:
    with pytest.raises(InvalidError, match=r"^job .*: write the name of its object, or its number, from 1$"):
        specs.checked_number(number)
    assert specs.checked_number(1) == 1


def test_what_a_refused_submission_leaves_is_removed_but_not_what_an_earlier_one_sent(tmp_path: Path) -> None:
    first, again = [travel.send(packed(len, "abc"), data=tmp_path, python=None, key="run-1") for _ in range(2)]
    travel.withdraw(again, data=tmp_path)
    assert first.folder is not None
    assert (first.folder / "call").exists()
    travel.withdraw(first, data=tmp_path)
    assert [*tmp_path.glob("calls/*"), *tmp_path.glob("environments/*")] == []


def test_with_a_key_the_outcome_stays_for_the_next_call_but_that_of_a_deleted_job_is_none(tmp_path: Path) -> None:
    first = travel.send(packed(len, "abc"), data=tmp_path, python=None, key="run-1")
    assert subprocess.run(first.command, check=False).returncode == 0
    first.forget()
    again = travel.send(packed(len, "abc"), data=tmp_path, python=None, key="run-1")
    now = datetime.now(UTC)
    found = again.begun(now - timedelta(seconds=60)).outcome(task=0, worker=0)
    assert found is not None
    assert found.value(of="job 1") == 3
    assert again.begun(now + timedelta(seconds=60)).outcome(task=0, worker=0) is None


def job_of(sent: travel.Sent, **variables: str) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return {"template": {"spec": {"containers": [{"name": "main", "command": list(sent.command), "env": env}]}}}


@pytest.mark.parametrize("is_local", [False, True])
def test_a_job_says_where_the_outcome_of_its_function_is(tmp_path: Path, *, is_local: bool) -> None:
    data = tmp_path if is_local else None
    sent = travel.send(packed(len, "abc"), data=data, python=None)
    found = travel.sent_before(job_of(sent, DOVETAIL_ARRAY_TASK_ID="3"), data=data)
    assert found is not None
    assert (found.folder, found.word, found.task) == (sent.folder, "" if is_local else sent.word, 3)
    found.forget()
    assert sent.folder is None or sent.folder.exists(), "the one who submitted it reads it too"


def test_a_command_is_no_function_and_no_other_folder_is_read(tmp_path: Path) -> None:
    sent = travel.send(packed(len, "abc"), data=tmp_path, python=None)
    elsewhere = replace(sent, command=(*sent.command[:-1], str(tmp_path / "planted")))
    command = replace(sent, command=("python", "-c", "print()", "-", "word"))
    for spec in (job_of(elsewhere), job_of(command), {}, {"template": {"spec": {"containers": []}}}):
        assert travel.sent_before(spec, data=tmp_path) is None
    assert travel.sent_before(job_of(sent), data=None) is None


def test_an_interpreter_that_this_machine_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match='python "/no/python": this machine has no such program'):
        travel.send(b"", data=tmp_path, python="/no/python")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_pickled_is_refused_before_anything_is_submitted() -> None:
    with pytest.raises(InvalidError, match="an argument cannot be pickled: TypeError"):
        packed(len, (x for x in "ab"))


def test_what_is_too_large_for_a_cluster_is_refused_with_the_way_out() -> None:
    data = packed(len, os.urandom(300_000))
    with pytest.raises(InvalidError, match="at most 262,144 travel with a job: put large values on a volume"):
        travel.send(data, data=None, python=None)


def test_modules_below_the_directory_go_along_to_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_helpers.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import own_helpers  # type: ignore[import-not-found] # just written

    data = packed(own_helpers.twice, 4)
    (tmp_path / "own_helpers.py").unlink()
    found = by_log(data)[1]
    assert found is not None
    assert found.value(of="job 1") == 8


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_which_modules_go_along_by_value_is_the_same_after_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ours: bool, fails: bool
) -> None:
    names = ["own_before", "own_after"]
    for name in names:
        (tmp_path / f"{name}.py").write_text("def same(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    first, second = [importlib.import_module(name) for name in names]
    monkeypatch.setitem(sys.modules, "another_name", second)
    monkeypatch.chdir(tmp_path if is_ours else "/dev")
    cloudpickle.register_pickle_by_value(first)
    try:
        before = cloudpickle.list_registry_pickle_by_value()
        with pytest.raises(InvalidError) if fails else nullcontext():
            packed(first.same, Lock() if fails else 4)
        assert cloudpickle.list_registry_pickle_by_value() == before
    finally:
        cloudpickle.unregister_pickle_by_value(first)
        for name in names:
            sys.modules.pop(name)


def test_where_everything_is_below_the_directory_python_s_own_modules_do_not_go_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/")
    assert {module.__name__ for module in packing._own_modules()}.isdisjoint({"posixpath", "json", "dovetail.sdk"})


def test_a_module_of_one_s_own_goes_along_under_a_name_that_python_has_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "tabnanny"
    assert name in sys.stdlib_module_names
    (tmp_path / f"{name}.py").write_text("def same(x):\n    return x\n")
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    own = importlib.import_module(name)
    try:
        assert own in [*packing._own_modules()]
    finally:
        sys.modules.pop(name)


def test_on_this_machine_a_job_gets_the_directory_the_environment_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = packed(len, "abc", along=False)
    sent = travel.send(data, data=tmp_path / "data", python=None)
    assert sent.folder is not None
    assert (sent.folder / "call").read_bytes() == data
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "data").rglob("*")} == {0}
    spec = sent.completed({"template": {"spec": {"containers": [{"name": "main", "command": list(sent.command)}]}}})
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["workingDir"], container["command"][0]) == (str(tmp_path), sys.executable)
    (name,) = spec["template"]["metadata"]["annotations"].values()
    assert (tmp_path / "data" / "environments" / name).exists()
    travel.withdraw(sent, data=tmp_path / "data")
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


WORD = "ab12"
LINE = f"{runner.MARK} {WORD} {{}}/{{}} {{}}"
TEXT = base64.b64encode(msgspec.json.encode({"kind": "value", "text": "x"}) + b"\n").decode()


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([LINE.format(1, 1, TEXT)], True),
        ([LINE.format(1, 2, TEXT[:8]), "another thread prints", LINE.format(2, 2, TEXT[8:])], True),
        ([LINE.format(1, 2, TEXT[:8])], False),
        ([LINE.format(2, 2, TEXT[8:])], False),
        ([LINE.format(1, 2, "lost"), LINE.format(1, 1, TEXT)], True),
        ([LINE.format(1, 1, "no base64!")], False),
        ([LINE.replace(WORD, "ab13").format(1, 1, TEXT)], False),
        ([LINE.replace(f" {WORD}", "").format(1, 1, TEXT)], False),
        (["> " + LINE.format(1, 1, TEXT)], False),
        ([], False),
    ],
)
def test_an_outcome_in_a_log_is_whole_or_none(lines: list[str], *, found: bool) -> None:
    assert (outcomes.in_log(lines, word=WORD) is not None) is found


class Mapped:
    """The calls of a map, which have ended."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def as_completed(self, *, timeout_seconds: float | None = None) -> Iterator[MappedCall]:
        del timeout_seconds
        for index in range(self.count):
            outcome = Outcome(kind="value", text="", traceback="", data=cloudpickle.dumps(index))
            yield MappedCall(index=index, outcome=outcome, job="map")


class Hopeless:
    """A job of a function that no node could ever run; also of a map."""

    def __init__(self, *, unreachable: bool = False) -> None:
        self.row = SimpleNamespace(phase="Queued", reason="ExceedsCapacity", request="64")
        self.phase = "Queued"
        self.unreachable = unreachable
        self.cancelled = 0

    def __len__(self) -> int:
        return 2

    def done(self) -> bool:
        return True

    def result(self) -> None:
        raise FunctionFailedError("job 1", problem="it can never start here")

    def as_completed(self, *, timeout_seconds: float | None = None) -> Iterator[MappedCall]:
        del timeout_seconds
        yield from ()
        self.result()

    def cancel(self) -> None:
        self.cancelled += 1
        if self.unreachable:
            raise UnreachableError("x", call="DELETE /", problem="refused", attempts=1)
        self.row = SimpleNamespace(phase="Cancelled", reason="", request="64")


@pytest.mark.parametrize("unreachable", [False, True], ids=["cancelled", "the gateway does not answer"])
def test_an_executor_cancels_a_call_that_can_never_start(*, unreachable: bool) -> None:
    call, read, unread = (Hopeless(unreachable=unreachable) for _ in range(3))
    maps = iter([read, unread])
    client = SimpleNamespace(submit=lambda *_words, **_options: call, map=lambda *_words, **_options: next(maps))
    with Executor(client) as executor:  # type: ignore[arg-type]
        assert "can never start" in str(executor.submit(abs, 1).exception(60))
        with pytest.raises(FunctionFailedError, match="can never start"):
            next(executor.map(abs, [1, 2]))
        executor.map(abs, [1, 2])
    assert call.cancelled == 1
    # The end of the block looks at every map again.
    assert (read.cancelled, unread.cancelled) == ((2, 1) if unreachable else (1, 1))


def test_an_executor_forgets_a_map_whose_calls_have_ended() -> None:
    client = SimpleNamespace(map=lambda _function, elements, **_options: Mapped(len(elements)))
    executor = Executor(client)  # type: ignore[arg-type]
    for _ in range(3):
        assert list(executor.map(abs, [1, 2])) == [0, 1]
    assert len(executor._maps) == 1
    unread = [executor.map(abs, [1, 2]) for _ in range(2)]
    assert len(executor._maps) == 2
    executor.shutdown()
    assert [list(each) for each in unread] == [[0, 1], [0, 1]]
