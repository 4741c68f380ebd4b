"""The executor: each future gets the end of its own job, and each value of a map is waited for as long as was said."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from dovetail.answers.jobs import JobRow
from dovetail.sdk import executor as module
from dovetail.sdk.errors import BusyError, DovetailError, FunctionFailedError, UnreachableError, WaitTimeoutError
from dovetail.sdk.executor import Executor
from tests.sdk.test_waits import row

End = Literal["value", "error", "lost"]


class OwnError(Exception):
    """What a function raises."""


@dataclass(eq=False)
class Job:
    """A job that is as a test says; `cancelled` counts the requests to cancel it."""

    number: int
    phase: str = "Queued"
    end: End | None = None
    broken: DovetailError | None = None
    cancelled: int = 0

    @property
    def row(self) -> JobRow:
        return row(self.phase, reason="")

    def done(self) -> bool:
        if self.broken is not None:
            raise self.broken
        return self.end is not None

    def result(self) -> int:
        if self.end == "error":
            raise OwnError(self.number)
        if self.end == "lost":
            raise FunctionFailedError(f"job {self.number}", problem="it has no result")
        return self.number * 11

    def cancel(self) -> None:
        self.cancelled += 1


@dataclass(kw_only=True)
class Client:
    """Submits jobs that never end by themselves."""

    jobs: list[Job] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0

    def submit(self, _function: Any, *arguments: Any, kwargs: Any, **options: Any) -> Job:
        self.options.append({"arguments": arguments, "kwargs": kwargs, **options})
        self.jobs.append(Job(len(self.jobs)))
        return self.jobs[-1]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.001)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def ended(future: futures.Future[Any]) -> Any:
    try:
        error = future.exception(timeout=120)
    except futures.CancelledError:
        return "cancelled"
    return (type(error), str(error)) if error is not None else future.result()


@pytest.mark.parametrize("seed", range(4))
def test_each_future_ends_as_its_job_whatever_order_they_end_in(seed: int) -> None:
    rng, client = Random(seed), Client()
    executor = Executor(client, gpu="1")  # type: ignore[arg-type]
    submitted = [executor.submit(pow, number, mod=7) for number in range(12)]
    assert [each["arguments"] for each in client.options] == [(number,) for number in range(12)]
    assert all((each["kwargs"], each["gpu"]) == ({"mod": 7}, "1") for each in client.options)
    wanted: dict[int, Any] = {}
    for job in rng.sample(client.jobs, 12):
        future = submitted[job.number]
        match rng.randrange(5):
            case 0:
                assert future.cancel()
                wanted[job.number] = "cancelled"
            case 1:
                job.broken = BusyError("later", status=503)
                wanted[job.number] = (BusyError, "later")
            case _:
                if rng.random() < 0.5:
                    job.phase = "Running"
                    until(future.running)
                    assert not future.cancel(), "what runs is not cancelled"
                job.end = rng.choice(["value", "error", "lost"])
                wanted[job.number] = {
                    "value": job.number * 11,
                    "error": (OwnError, str(job.number)),
                    "lost": (FunctionFailedError, f"job {job.number}: it has no result"),
                }[job.end]
        assert ended(future) == wanted[job.number]
    executor.shutdown()
    assert [job.cancelled for job in client.jobs] == [int(wanted[at] == "cancelled") for at in range(12)]
    assert (executor._waiting, client.closed) == ({}, 0), "a client that was given stays open"


def test_a_future_that_is_cancelled_just_before_its_job_runs_cancels_it() -> None:
    client = Client()
    executor = Executor(client)  # type: ignore[arg-type]
    future = executor.submit(len, "abc")
    (job,) = client.jobs
    looked = threading.Event()

    def done() -> bool:
        """The job starts while it is looked at, after its user has cancelled it."""
        assert future.cancel()
        job.phase = "Running"
        looked.set()
        return False

    job.done = done  # type: ignore[method-assign]
    assert ended(future) == "cancelled"
    executor.shutdown()
    assert (looked.is_set(), job.cancelled) == (True, 1)


def test_after_shutdown_nothing_is_submitted_and_what_there_is_comes_to_its_end() -> None:
    client = Client()
    executor = Executor(client)  # type: ignore[arg-type]
    first, second = executor.submit(len, "a"), executor.submit(len, "b")
    client.jobs[0].phase = "Running"
    until(first.running)
    executor.shutdown(wait=False, cancel_futures=True)
    for call in (lambda: executor.submit(len, "c"), lambda: executor.map(len, ["c"])):
        with pytest.raises(RuntimeError, match="after shutdown"):
            call()
    assert ended(second) == "cancelled"
    assert not first.done()
    client.jobs[0].end = "value"
    executor.shutdown()
    assert ended(first) == 0
    assert [job.cancelled for job in client.jobs] == [0, 1]
    assert len(client.jobs) == 2


@pytest.mark.parametrize("wait", [True, False])
def test_a_client_of_its_own_is_closed_once_nothing_is_asked_any_more(
    monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    client = Client()
    monkeypatch.setattr(module, "Client", lambda: client)
    executor = Executor()
    executor.shutdown(wait=wait)
    assert client.closed == int(wait)


@dataclass(kw_only=True)
class Mapped:
    """The calls of a map: those that are `over` have ended. It waits no real time, and remembers for how long."""

    count: int
    clock: list[float]
    over: set[int] = field(default_factory=set)
    waited: list[float | None] = field(default_factory=list)
    away: bool = False
    row: JobRow = field(default_factory=lambda: row("Running"))

    def __len__(self) -> int:
        return self.count

    def as_completed(self, *, timeout_seconds: float | None = None) -> Iterator[Any]:
        self.waited.append(timeout_seconds)
        for index in sorted(self.over):
            yield SimpleNamespace(index=index, value=lambda index=index: index * 11)
        if self.away:
            raise UnreachableError("http://gateway", call="GET", problem="reset", attempts=3)
        if len(self.over) < self.count:
            self.clock[0] += timeout_seconds or 0.0
            raise WaitTimeoutError("some calls have not ended", seconds=timeout_seconds or 0.0, last="")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found[0]))
    return found


def mapping(made: Mapped) -> Executor:
    return Executor(SimpleNamespace(map=lambda *_, **__: made))  # type: ignore[arg-type]


def test_the_time_of_a_map_counts_from_its_call_and_not_from_each_value(clock: list[float]) -> None:
    made = Mapped(count=3, clock=clock, over={0})
    values = mapping(made).map(abs, [0, 1, 2], timeout=30)
    clock[0] += 10
    assert next(values) == 0
    with pytest.raises(TimeoutError):
        next(values)
    assert made.waited == [20.0], "the first 10 s have passed already"


def test_who_asks_again_after_the_time_gets_what_has_ended_by_then(clock: list[float]) -> None:
    made = Mapped(count=2, clock=clock, over={1})
    executor = mapping(made)
    values = executor.map(abs, [0, 1], timeout=5)
    with pytest.raises(WaitTimeoutError):
        next(values)
    made.over.add(0)
    (kept,) = executor._maps
    assert list(kept) == [0, 11]
    assert made.waited == [5.0, 0.0], "no more is waited for after the time"


def test_a_gateway_that_was_away_ends_no_map(clock: list[float]) -> None:
    made = Mapped(count=2, clock=clock, over={0}, away=True)
    executor = mapping(made)
    executor.map(abs, [0, 1])
    (kept,) = executor._maps
    with pytest.raises(UnreachableError):
        list(kept)
    made.over.add(1)
    made.away = False
    assert list(kept) == [0, 11]
    assert made.waited == [None, None]


def test_values_that_end_in_another_order_come_in_that_of_the_arguments(clock: list[float]) -> None:
    made = Mapped(count=3, clock=clock, over={0, 1, 2})
    made.as_completed = lambda **_: iter(  # type: ignore[method-assign]
        SimpleNamespace(index=index, value=lambda index=index: index * 11) for index in (2, 0, 1)
    )
    assert list(mapping(made).map(abs, [0, 1, 2])) == [0, 11, 22]


def test_a_map_of_nothing_asks_nothing_and_one_of_several_iterables_ends_with_the_shortest() -> None:
    asked: list[Any] = []
    client = SimpleNamespace(map=lambda _function, *columns, **options: asked.append((columns, options)) or [])
    executor = Executor(client, image="x")  # type: ignore[arg-type]
    assert list(executor.map(pow, [])) == []
    assert asked == []
    executor.map(pow, [1, 2, 3], [4, 5])
    ((columns, options),) = asked
    assert (list(map(tuple, columns)), options) == ([(1, 2), (4, 5)], {"image": "x"})
