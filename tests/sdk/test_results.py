"""Results of functions on a cluster: a gateway whose tasks end at drawn times, and that fails at drawn requests.

Whatever fails in between, who asks again gets each call's own outcome: the value or the error that it has printed.
"""

import asyncio
import base64
import json
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.answers.jobs import JobDetails
from dovetail.jobs.array_indexes import as_text
from dovetail.sdk.aio import functions as functions_module
from dovetail.sdk.aio import jobs as jobs_module
from dovetail.sdk.aio.functions import AsyncFunctionJob, AsyncMapJob
from dovetail.sdk.calls.call import Call
from dovetail.sdk.errors import (
    BusyError,
    DovetailError,
    FunctionFailedError,
    NotFoundError,
    UnreachableError,
    WaitTimeoutError,
)
from dovetail.sdk.functions import outcomes
from dovetail.sdk.functions.outcomes import begin_of
from dovetail.sdk.functions.runner import MARK
from dovetail.sdk.functions.travel import Sent
from tests import virtual_time
from tests.sdk.test_waits import row
from tests.virtual_time import clock

End = Literal["value", "error", "killed"]
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
        if self.end == "killed":
            return list(NOISE)
        data = pickle.dumps(number * 11 if self.end == "value" else OwnError(number))
        head = json.dumps({"kind": self.end, "text": f"OwnError: {number}"}).encode()
        text = base64.b64encode(head + b"\n" + data).decode()
        parts = [text[:9], text[9:20], text[20:]]
        begin = begin_of(SENT.word)
        return [*NOISE, *(f"{begin}{at}/3 {part}" for at, part in enumerate(parts, start=1)), *NOISE[::2]]

    def outcome(self, number: int) -> Any:
        return {"value": number * 11, "error": f"OwnError: {number}", "killed": "it is Failed and has no result"}[
            self.end
        ]


@dataclass(kw_only=True)
class Gateway:
    """Answers about a map's array or a gang; the requests at `failing` fail, in turn for each reason that passes."""

    work: list[Work]
    failing: set[int] = field(default_factory=set)
    is_map: bool = True
    asked: int = 0

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

    async def send(self, call: Call[Any]) -> Any:
        await asyncio.sleep(0.01)
        self._fail()
        name = call.path.rpartition("/")[2]
        assert call.method == "GET"
        if name.startswith("train-t"):
            index = int(name.removeprefix("train-t"))
            return JobDetails(row=row(self._phase([index]), name=name), spec={}, status={})
        ended = [index for index in range(len(self.work)) if self._over(index)]
        good = [index for index in ended if self.work[index].end == "value"]
        tasks = {"succeededIndexes": as_text(good), "failedIndexes": as_text(set(ended) - set(good))}
        status = {"tasks": tasks} if self.is_map else {}
        return JobDetails(row=row(self._phase(range(len(self.work)))), spec={}, status=status)

    def _phase(self, of: Any) -> str:
        if not all(self._over(index) for index in of):
            return "Running"
        return "Succeeded" if all(self.work[index].end == "value" for index in of) else "Failed"

    @asynccontextmanager
    async def lines(self, call: Call[Any]) -> AsyncIterator[AsyncIterator[str]]:
        await asyncio.sleep(0.01)
        self._fail()
        name = call.path.split("/")[-2]
        index = int(name.removeprefix("train-t")) if self.is_map else int(call.query["worker"])
        work = self.work[index]
        if work.end == "killed" and index % 2:
            raise NotFoundError("the pod is gone", status=404)
        text = work.printed(index)
        if clock() - BEGIN < work.seconds + work.late:
            text = text[: len(NOISE) + 2]

        async def each() -> AsyncIterator[str]:
            for line in text:
                yield line

        yield each()

    def map(self) -> AsyncMapJob:
        return AsyncMapJob(row("Queued"), transport=self, sent=SENT, calls=len(self.work))  # type: ignore[arg-type]

    def gang(self) -> AsyncFunctionJob[Any]:
        return AsyncFunctionJob(row("Queued"), transport=self, sent=SENT, workers=len(self.work))  # type: ignore[arg-type]


@pytest.fixture(autouse=True, scope="module")
def virtual() -> Any:
    class Clock:
        monotonic = staticmethod(clock)

    with pytest.MonkeyPatch.context() as patch:
        for module in (functions_module, jobs_module):
            patch.setattr(module, "time", Clock)
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


@given(work=works, failing=failures)
def test_each_call_of_a_map_has_its_own_outcome_whatever_fails_meanwhile(work: list[Work], failing: set[int]) -> None:
    gateway = Gateway(work=work, failing=set(failing))

    async def collected() -> tuple[dict[int, Any], list[int]]:
        made, found, order = gateway.map(), dict[int, Any](), list[int]()
        while len(found) < len(work):
            try:
                async for call in made.as_completed():
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


@given(work=works, failing=failures)
def test_the_results_of_a_map_are_in_the_order_of_its_arguments(work: list[Work], failing: set[int]) -> None:
    gateway = Gateway(work=work, failing=set(failing))

    async def results() -> Any:
        made = gateway.map()
        while True:
            try:
                return await made.results()
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


@given(work=works, failing=failures)
def test_a_gang_has_the_outcome_of_each_worker_by_rank(work: list[Work], failing: set[int]) -> None:
    gateway = Gateway(work=work, failing=set(failing), is_map=False)

    async def result() -> Any:
        made = gateway.gang()
        while True:
            try:
                return await made.result()
            except (BusyError, UnreachableError):
                continue
            except (OwnError, FunctionFailedError) as error:
                return error, await made.exception()

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


@pytest.mark.parametrize("seconds", [0, 2.0, 7.5])
def test_a_result_that_does_not_come_in_time_says_how_many_are_missing(seconds: float) -> None:
    gateway = Gateway(work=[Work(seconds=1), Work(seconds=100)])

    async def waited() -> tuple[DovetailError, float]:
        with pytest.raises(WaitTimeoutError) as caught:
            await gateway.map().results(timeout_seconds=seconds)
        return caught.value, clock() - BEGIN

    error, took = virtual_time.run(waited())
    assert str(error).startswith(f"{1 if seconds else 2} of 2 calls of red/train have not ended within {seconds:g} s")
    assert seconds <= took < seconds + 0.2


def test_of_a_call_that_ran_again_the_last_outcome_counts() -> None:
    error, value = (Work(seconds=0, end=end).printed(3) for end in ("error", "value"))
    found = [outcomes.in_log(lines, word=SENT.word) for lines in ([*error, *value], [*value, *error])]
    assert [each and each.kind for each in found] == ["value", "error"]
