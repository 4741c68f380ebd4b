"""Results of functions on a cluster: a gateway whose tasks end at drawn times, and that fails at drawn requests.

Whatever fails in between, who asks again gets each call's own outcome: the value or the error that it has printed. Each
test runs with asyncio and without, in virtual time: what blocks moves the clock of the loop.
"""

import asyncio
import base64
import inspect
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.answers.callers import Me
from dovetail.answers.jobs import JobDetails
from dovetail.jobs.array_indexes import as_text
from dovetail.sdk.aio import functions as functions_module
from dovetail.sdk.aio import jobs as jobs_module
from dovetail.sdk.aio.functions import AsyncFunctionJob, AsyncMapJob
from dovetail.sdk.blocking import functions as blocking_functions
from dovetail.sdk.blocking import jobs as blocking_jobs
from dovetail.sdk.blocking import runtime as blocking_runtime
from dovetail.sdk.blocking.functions import FunctionJob, MapJob
from dovetail.sdk.calls.call import Call
from dovetail.sdk.errors import (
    BusyError,
    FunctionFailedError,
    NotFoundError,
    UnreachableError,
)
from dovetail.sdk.functions import outcomes
from dovetail.sdk.functions.outcomes import begin_of
from dovetail.sdk.functions.runner import MARK
from dovetail.sdk.functions.travel import Sent
from tests import virtual_time
from tests.sdk.test_waits import row
from tests.virtual_time import clock

# A task that is gone has been deleted after its end.
End = Literal["value", "error", "killed", "gone"]
SENT: Final = Sent(command=("python3",), word="ab12")
BEGIN: Final = 1000.0
# Lines that a program prints before its outcome, and between its parts.
NOISE: Final = ("epoch 1", f"{MARK}s are many", "")


class OwnError(Exception):
    """What a function raises."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A call or worker: it ends after `seconds`, and its log is whole `late` seconds later."""

    seconds: float
    end: End = "value"
    late: float = 0.0

    def printed(self, number: int) -> list[str]:
        if self.end in ("killed", "gone"):
            return list(NOISE)
        data = pickle.dumps(number * 11 if self.end == "value" else OwnError(number))
        head = json.dumps({"kind": self.end, "text": f"OwnError: {number}"}).encode()
        text = base64.b64encode(head + b"\n" + data).decode()
        parts = [text[:9], text[9:20], text[20:]]
        begin = begin_of(SENT.word)
        return [*NOISE, *(f"{begin}{at}/3 {part}" for at, part in enumerate(parts, start=1)), *NOISE[::2]]

    def outcome(self, number: int) -> Any:
        return {
            "value": number * 11,
            "error": f"OwnError: {number}",
            "killed": "it is Failed and has no result",
            "gone": "its task is gone, and its log with it",
        }[self.end]


@dataclass(kw_only=True)
class Gateway:
    """Answers about a map's array or a gang; the requests at `failing` fail, in turn for each reason that passes."""

    work: list[Work]
    failing: set[int] = field(default_factory=set)
    is_map: bool = True
    asked: int = 0
    said: dict[str, str] = field(default_factory=dict)

    def _fail(self) -> None:
        self.asked += 1
        if self.asked in self.failing:
            raise (
                BusyError("the view is not complete", status=503)
                if self.asked % 2
                else UnreachableError("http://gateway", call="GET", problem="reset", attempts=3)
            )

    def _over(self, index: int) -> bool:
        return clock() - BEGIN >= self.work[index].seconds

    def answer(self, call: Call[Any]) -> Any:
        self._fail()
        name = call.path.rpartition("/")[2]
        assert call.method == "GET"
        if name.startswith("train-t"):
            index = int(name.removeprefix("train-t"))
            if self.work[index].end == "gone":
                raise NotFoundError("there is no such job", status=404)
            return JobDetails(row=row(self._phase([index]), name=name), spec={}, status={})
        ended = [index for index in range(len(self.work)) if self._over(index)]
        good = [index for index in ended if self.work[index].end == "value"]
        tasks = {"succeededIndexes": as_text(good), "failedIndexes": as_text(set(ended) - set(good))}
        status = {"tasks": tasks} if self.is_map else {}
        said = {"phase": self._phase(range(len(self.work))), **self.said}
        return JobDetails(row=row(**said), spec={}, status=status)

    def _phase(self, of: Any) -> str:
        if not all(self._over(index) for index in of):
            return "Running"
        return "Succeeded" if all(self.work[index].end == "value" for index in of) else "Failed"

    def log(self, call: Call[Any]) -> list[str]:
        self._fail()
        name = call.path.split("/")[-2]
        index = int(name.removeprefix("train-t")) if self.is_map else int(call.query["worker"])
        work = self.work[index]
        if work.end == "gone" or (work.end == "killed" and index % 2):
            raise NotFoundError("the pod is gone", status=404)
        text = work.printed(index)
        return text if clock() - BEGIN >= work.seconds + work.late else text[: len(NOISE) + 2]

    def made(self, face: str, *, sent: Sent = SENT) -> Any:
        """The map or gang, as one face of the SDK has it."""
        transport = {"aio": Transport, "blocking": BlockingTransport}[face](self)
        options: Any = {"transport": transport, "sent": sent}
        if self.is_map:
            kind: Any = {"aio": AsyncMapJob, "blocking": MapJob}[face]
            return kind(row("Queued"), calls=len(self.work), **options)
        kind = {"aio": AsyncFunctionJob, "blocking": FunctionJob}[face]
        return kind(row("Queued"), workers=len(self.work), **options)


@dataclass(frozen=True)
class Transport:
    gateway: Gateway

    async def send(self, call: Call[Any]) -> Any:
        await asyncio.sleep(0.01)
        return self.gateway.answer(call)

    @asynccontextmanager
    async def lines(self, call: Call[Any]) -> AsyncIterator[AsyncIterator[str]]:
        await asyncio.sleep(0.01)
        text = self.gateway.log(call)

        async def each() -> AsyncIterator[str]:
            for line in text:
                yield line

        yield each()


@dataclass(frozen=True)
class BlockingTransport:
    gateway: Gateway

    def send(self, call: Call[Any]) -> Any:
        virtual_time.pass_by(0.01)
        return self.gateway.answer(call)

    @contextmanager
    def lines(self, call: Call[Any]) -> Iterator[Iterator[str]]:
        virtual_time.pass_by(0.01)
        yield iter(self.gateway.log(call))


async def of(made: Any) -> Any:
    """The result of a method of either face."""
    return await made if inspect.isawaitable(made) else made


async def each_of(made: Any) -> AsyncIterator[Any]:
    """What an iterator of either face gives."""
    if hasattr(made, "__aiter__"):
        async for each in made:
            yield each
    else:
        for each in made:
            yield each


both = pytest.mark.parametrize("face", ["aio", "blocking"])


@pytest.fixture(autouse=True, scope="module")
def virtual() -> Any:
    class Clock:
        monotonic = staticmethod(clock)

    with pytest.MonkeyPatch.context() as patch:
        for module in (functions_module, jobs_module, blocking_functions, blocking_jobs):
            patch.setattr(module, "time", Clock)
        patch.setattr(blocking_runtime, "sleep", virtual_time.pass_by)
        yield


works = st.lists(
    st.builds(
        Work, seconds=st.integers(0, 20), end=st.sampled_from(["value", "value", "error", "killed"]),
        late=st.sampled_from([0.0, 0.0, 1.0, 4.0]),
    ),
    min_size=1, max_size=5,
)  # fmt: skip
failures = st.sets(st.integers(1, 40), max_size=8) | st.just(set(range(3, 60, 4)))


def of_call(call: Any) -> Any:
    """What the call has come to, as `Work.outcome` says it."""
    try:
        return call.value()
    except (OwnError, FunctionFailedError) as error:
        return said_of(error)


def said_of(error: Any) -> str:
    """What a call has come to that raised this: its own error has the job's as its cause."""
    return error.__cause__.problem if isinstance(error, OwnError) else error.problem.partition(":")[0]


@pytest.mark.parametrize(
    ("phase", "reason", "request_", "hopeless"),
    [
        ("Queued", "ExceedsCapacity", "64", True),
        ("Queued", "ExceedsCapacity", "", True),
        pytest.param("Queued", "ExceedsCapacity", "2x3g.20gb", False, id="a GPU may be partitioned for it"),
        ("Queued", "Resources", "2", False),
        ("Cancelled", "ExceedsCapacity", "64", False),
    ],
)
def test_only_a_job_that_can_never_start_is_not_waited_for(
    phase: str, reason: str, request_: str, *, hopeless: bool
) -> None:
    assert outcomes.is_hopeless(row(phase, reason=reason, request=request_)) is hopeless


@both
@given(work=works, failing=failures)
def test_each_call_of_a_map_has_its_own_outcome_whatever_fails_meanwhile(
    work: list[Work], failing: set[int], face: str
) -> None:
    gateway = Gateway(work=work, failing=set(failing))

    async def collected() -> tuple[dict[int, Any], list[int]]:
        made, found, order = gateway.made(face), dict[int, Any](), list[int]()
        while len(found) < len(work):
            try:
                async for call in each_of(made.as_completed()):
                    if call.index not in found:
                        order.append(call.index)
                    found[call.index] = of_call(call)
            except (BusyError, UnreachableError):
                continue
        return found, order

    found, order = virtual_time.run(collected())
    assert found == {index: each.outcome(index) for index, each in enumerate(work)}
    assert sorted(order) == list(range(len(work)))
    # They come as they end, later by what others' logs and failures take.
    ended = [work[index].seconds for index in order]
    assert all(later >= earlier - 6 * len(work) for earlier, later in pairwise(ended))


@both
@given(work=works, failing=failures)
def test_the_results_of_a_map_are_in_the_order_of_its_arguments(work: list[Work], failing: set[int], face: str) -> None:
    gateway = Gateway(work=work, failing=set(failing))

    async def results() -> Any:
        made = gateway.made(face)
        while True:
            try:
                return await of(made.results())
            except (BusyError, UnreachableError):
                continue
            except (OwnError, FunctionFailedError) as error:
                return error

    found = virtual_time.run(results())
    bad = [(index, each) for index, each in enumerate(work) if each.end != "value"]
    if not bad:
        assert found == [index * 11 for index in range(len(work))]
    else:
        index, first = bad[0]
        assert said_of(found) == first.outcome(index)


@both
@given(work=works, failing=failures)
def test_a_gang_has_the_outcome_of_each_worker_by_rank(work: list[Work], failing: set[int], face: str) -> None:
    gateway = Gateway(work=work, failing=set(failing), is_map=False)

    async def result() -> Any:
        made = gateway.made(face)
        while True:
            try:
                return await of(made.result())
            except (BusyError, UnreachableError):
                continue
            except (OwnError, FunctionFailedError) as error:
                return error, await of(made.exception())

    found = virtual_time.run(result())
    found, again = found if isinstance(found, tuple) else (found, None)
    assert type(again) is (type(found) if isinstance(found, Exception) else type(None))
    bad = [(index, each) for index, each in enumerate(work) if each.end != "value"]
    if bad:
        index, first = bad[0]
        assert said_of(found) == first.outcome(index)
    else:
        values = [index * 11 for index in range(len(work))]
        assert found == (values if len(work) > 1 else values[0])


def test_of_a_call_that_ran_again_the_last_outcome_counts() -> None:
    error, value = (Work(seconds=0, end=end).printed(3) for end in ("error", "value"))
    found = [outcomes.in_log(lines, word=SENT.word) for lines in ([*error, *value], [*value, *error])]
    assert [each and each.kind for each in found] == ["value", "error"]


class _Planted:
    """Unpickled where it is read."""

    def __reduce__(self) -> Any:
        return (_is_read, ())


_read: list[bool] = []


def _is_read() -> None:
    _read.append(True)


@dataclass(kw_only=True)
class Found:
    """A gateway with one job of a function that has ended, of `owner`; the one who asks is `tom`."""

    owner: str
    spec: dict[str, Any]
    connection: Any = field(default_factory=lambda: SimpleNamespace(local_data=None, url="http://gateway"))

    def details(self) -> JobDetails:
        return JobDetails(row=row("Succeeded", user=self.owner), spec=self.spec, status={})

    def answer(self, call: Call[Any]) -> Any:
        if call.path == "/api/v3/me":
            return Me(username="tom", groups=[], everywhere=False, namespaces=[], expires_at=None)
        return self.details()

    def log(self, _call: Call[Any]) -> list[str]:
        text = base64.b64encode(b'{"kind": "value"}\n' + pickle.dumps(_Planted())).decode()
        return [f"{begin_of(SENT.word)}1/1 {text}"]

    async def found(self, face: str) -> Any:
        made: Any = {"aio": Transport, "blocking": BlockingTransport}[face](self)  # type: ignore[arg-type]
        transport = SimpleNamespace(connection=self.connection, send=made.send, lines=made.lines)
        of_face: Any = {"aio": functions_module, "blocking": blocking_functions}[face]
        return await of(of_face.found(self.details(), transport=transport))


def spec_of(**fields: Any) -> dict[str, Any]:
    command = ["python3", "-c", '"""Call a function in a job …"""', "-", SENT.word, "…"]
    return {"template": {"spec": {"containers": [{"name": "main", "command": command}]}}, **fields}


@both
@pytest.mark.parametrize("owner", ["eve", "", "tom"])
def test_what_another_user_s_function_returned_is_not_unpickled(face: str, owner: str) -> None:
    _read.clear()

    async def asked() -> None:
        job = await Found(owner=owner, spec=spec_of()).found(face)
        calls = await Found(owner=owner, spec=spec_of(array={"indexes": "0-1"})).found(face)
        if owner == "tom":
            assert await of(job.result()) is None
            return
        for result in (job.result, calls.results):
            with pytest.raises(FunctionFailedError, match=f"its user is {owner or 'unknown'}, and reading its result"):
                await of(result())

    virtual_time.run(asked())
    assert bool(_read) == (owner == "tom")
