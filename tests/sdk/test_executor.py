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
from dovetail.sdk.errors import (
    BusyError,
    DovetailError,
    ForbiddenError,
    FunctionFailedError,
    InvalidError,
    UnreachableError,
    WaitTimeoutError,
)
from dovetail.sdk.executor import Executor
from dovetail.sdk.functions.outcomes import is_hopeless
from tests.sdk.test_waits import row

End = Literal["value", "error", "lost", "busy"]


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
    looks: int = 0

    @property
    def row(self) -> JobRow:
        return row(self.phase, reason="")

    def done(self) -> bool:
        self._ask()
        return self.end is not None

    def result(self) -> int:
        if self.end == "busy":
            raise BusyError("later", status=503) from FunctionFailedError("job 0", problem="BusyError: later")
        if self.end == "error":
            raise OwnError(self.number)
        if self.end == "lost":
            raise FunctionFailedError(f"job {self.number}", problem="it has no result")
        return self.number * 11

    def cancel(self) -> None:
        self._ask()
        self.cancelled += 1

    def _ask(self) -> None:
        self.looks += 1
        if self.broken is not None:
            raise self.broken


@dataclass(kw_only=True)
class Client:
    """Submits jobs that end as `end` says, by itself none, once `gate` is open."""

    jobs: list[Job] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0
    end: End | None = None
    made: "Mapped | None" = None
    gate: threading.Event | None = None
    on_their_way: int = 0

    def submit(self, _function: Any, *arguments: Any, kwargs: Any, **options: Any) -> Job:
        self._pass()
        self.options.append({"arguments": arguments, "kwargs": kwargs, **options})
        self.jobs.append(Job(len(self.jobs), end=self.end))
        return self.jobs[-1]

    def map(self, *_words: Any, **_options: Any) -> Any:
        self._pass()
        return self.made

    def _pass(self) -> None:
        if self.gate is not None:
            self.on_their_way += 1
            assert self.gate.wait(120)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.001)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_words: Any, **_options: Any) -> Any:
        raise error

    return fail


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
    # A loop of submissions waits for no answer of the queue.
    assert all((each["kwargs"], each["gpu"], each["answer_seconds"]) == ({"mod": 7}, "1", 0) for each in client.options)
    wanted: dict[int, Any] = {}
    for job in rng.sample(client.jobs, 12):
        future = submitted[job.number]
        match rng.randrange(5):
            case 0:
                assert future.cancel()
                wanted[job.number] = "cancelled"
            case 1:
                job.broken = ForbiddenError("not yours", status=403)
                wanted[job.number] = (ForbiddenError, "not yours")
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
    assert (executor._waiting, client.closed) == ([], 0), "a client that was given stays open"


def test_an_executor_that_is_forgotten_keeps_no_script_from_ending() -> None:
    executor = Executor(Client())  # type: ignore[arg-type]
    future = executor.submit(len, "abc")
    (thread,) = [each for each in threading.enumerate() if each.name == "dovetail-executor"]
    assert thread.daemon
    assert future.cancel()
    executor.shutdown()
    assert not thread.is_alive()


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


BUSY = BusyError("later", status=503)
AWAY = UnreachableError("http://gateway", call="GET", problem="reset", attempts=3)


@pytest.mark.parametrize("passing", [BUSY, AWAY], ids=["busy", "away"])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_failure_of_the_gateway_that_passes_ends_no_future(passing: DovetailError, *, cancelled: bool) -> None:
    client = Client()
    executor = Executor(client)  # type: ignore[arg-type]
    future = executor.submit(len, "abc")
    (job,) = client.jobs
    job.broken = passing
    if cancelled:
        assert future.cancel()
    until(lambda: job.looks > 3)
    job.end, job.broken = "value", None
    executor.shutdown()
    assert ended(future) == ("cancelled" if cancelled else 0)
    assert job.cancelled == int(cancelled)
    assert futures.wait([future], timeout=0).not_done == set()


def test_a_gateway_that_does_not_come_back_ends_a_future_after_ten_minutes(clock: list[float]) -> None:
    job = Job(0, broken=AWAY)
    future = futures.Future[int]()
    waiting = module._Waiting(future, job=job)  # type: ignore[arg-type]
    for _ in range(12):
        assert not waiting.is_over()
        clock[0] += 50
    assert waiting.is_over()
    assert ended(future) == (UnreachableError, str(AWAY))


def test_futures_whose_requests_hang_one_after_the_other_end_after_ten_minutes_too(clock: list[float]) -> None:
    jobs = [Job(number, broken=AWAY) for number in range(5)]
    left = [module._Waiting(futures.Future[int](), job=job) for job in jobs]  # type: ignore[arg-type]
    begun = clock[0]
    while left:
        for each in list(left):
            clock[0] += 120
            if each.is_over():
                left.remove(each)
        assert clock[0] - begun < 3000
    assert clock[0] - begun >= 600


def test_a_future_that_is_cancelled_as_its_job_fails_ends_all_the_same() -> None:
    class Cancelled(futures.Future[int]):
        def done(self) -> bool:
            found = super().done()
            self.cancel()
            return found

    future = Cancelled()
    waiting = module._Waiting(future, job=Job(0, broken=ForbiddenError("not yours", status=403)))  # type: ignore[arg-type]
    assert waiting.is_over()
    assert ended(future) == (ForbiddenError, "not yours")


def test_an_answer_in_between_begins_the_ten_minutes_again(clock: list[float]) -> None:
    job = Job(0, broken=AWAY)
    waiting = module._Waiting(futures.Future[int](), job=job)  # type: ignore[arg-type]
    for at in range(60):
        job.broken = None if at % 10 == 9 else AWAY
        assert not waiting.is_over()
        clock[0] += 50


def test_what_a_function_has_from_a_gateway_of_its_own_is_its_error() -> None:
    client = Client()
    with Executor(client) as executor:  # type: ignore[arg-type]
        future = executor.submit(len, "abc")
        client.jobs[0].end = "busy"
        assert ended(future) == (BusyError, "later")


def submitting(executor: Executor, client: Client, *, call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread whose call is on its way to the gateway until `client.gate` opens, and what it gets."""
    client.gate = threading.Event()
    found = list[Any]()
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    until(lambda: client.on_their_way == 1)
    return thread, found


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("before", [False, True], ids=["the first call", "a thread has followed another"])
def test_a_call_that_is_submitted_while_the_executor_ends_comes_to_its_end(*, before: bool, cancel: bool) -> None:
    client = Client(end="value")
    executor = Executor(client)  # type: ignore[arg-type]
    if before:
        assert executor.submit(len, "abc").result(120) == 0
    thread, found = submitting(executor, client, call=lambda: executor.submit(len, "abc"))
    closing = threading.Thread(target=executor.shutdown, kwargs={"cancel_futures": cancel})
    closing.start()
    until(lambda: executor._closed)
    client.end = None if cancel else "value"
    client.gate.set()
    thread.join(120)
    closing.join(120)
    assert [each.done() for each in found] == [True]
    assert ended(found[0]) == ("cancelled" if cancel else 11 * before)


def test_the_end_of_an_executor_waits_for_a_map_that_is_submitted_meanwhile(clock: list[float]) -> None:
    client = Client(made=Mapped(count=2, clock=clock, over={0, 1}))
    executor = Executor(client)  # type: ignore[arg-type]
    thread, found = submitting(executor, client, call=lambda: executor.map(abs, [0, 1]))
    closing = threading.Thread(target=executor.shutdown)
    closing.start()
    until(lambda: executor._closed)
    assert closing.is_alive()
    client.gate.set()
    closing.join(120)
    thread.join(120)
    assert client.made is not None
    assert client.made.waited == [None], "the end has taken the values"
    assert list(found[0]) == [0, 11]


def test_an_end_that_does_not_wait_leaves_a_submission_alone() -> None:
    client = Client(end="value")
    executor = Executor(client)  # type: ignore[arg-type]
    thread, found = submitting(executor, client, call=lambda: executor.submit(len, "abc"))
    executor.shutdown(wait=False)
    client.gate.set()
    thread.join(120)
    assert ended(found[0]) == 0


def test_a_submission_that_is_refused_keeps_no_end_waiting() -> None:
    client = Client()
    client.submit = raising(InvalidError("gpu: no such option", status=422))  # type: ignore[method-assign]
    with Executor(client) as executor, pytest.raises(InvalidError):  # type: ignore[arg-type]
        executor.submit(len, "abc")


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
    # The calls that have ended once the gateway is back after `away` requests, each of which takes `seconds`.
    after: set[int] = field(default_factory=set)
    away: int = 0
    seconds: float = 0.0
    waited: list[float | None] = field(default_factory=list)
    row: JobRow = field(default_factory=lambda: row("Running"))

    def __len__(self) -> int:
        return self.count

    def as_completed(self, *, timeout_seconds: float | None = None) -> Iterator[Any]:
        self.waited.append(timeout_seconds)
        if self.row.phase == "Cancelled":
            self.over = set(range(self.count))
        for index in sorted(self.over):
            yield SimpleNamespace(index=index, value=lambda index=index: index * 11)
        if self.away:
            self.away -= 1
            self.clock[0] += self.seconds
            raise AWAY
        self.over |= self.after
        for index in sorted(self.after):
            yield SimpleNamespace(index=index, value=lambda index=index: index * 11)
        if is_hopeless(self.row):
            raise FunctionFailedError("map train", problem="it can never start here")
        if len(self.over) < self.count:
            self.clock[0] += timeout_seconds or 0.0
            raise WaitTimeoutError("some calls have not ended", seconds=timeout_seconds or 0.0, last="")

    def cancel(self) -> None:
        self.row = row("Cancelled")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found[0], sleep=lambda _: None))
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


@pytest.mark.parametrize("by", [list, "the end of the block"])
def test_a_gateway_that_is_away_for_a_while_ends_no_map(clock: list[float], by: Any) -> None:
    made = Mapped(count=2, clock=clock, over={0}, away=3)
    executor = mapping(made)
    values = executor.map(abs, [0, 1])
    made.after = {1}
    if by is not list:
        executor.shutdown()
        assert executor._maps[0].has_all
    assert list(values) == [0, 11]
    assert made.away == 0


def test_the_time_of_a_map_ends_while_the_gateway_is_away_too(clock: list[float]) -> None:
    made = Mapped(count=2, clock=clock, over={0}, away=1000, seconds=20.0)
    values = mapping(made).map(abs, [0, 1], timeout=30)
    assert next(values) == 0
    begun = clock[0]
    with pytest.raises(
        WaitTimeoutError, match=r"^some calls have not ended within 30 s: the gateway at http://gateway"
    ):
        next(values)
    assert clock[0] - begun == 40


def test_failures_of_the_gateway_while_no_call_of_a_map_ends_add_up_to_nothing(clock: list[float]) -> None:
    made = Mapped(count=1, clock=clock, away=20, seconds=400.0, after={0})
    assert list(mapping(made).map(abs, [0])) == [0]


def test_a_gateway_that_stays_away_is_waited_for_ten_minutes_and_asked_again_later(clock: list[float]) -> None:
    made = Mapped(count=2, clock=clock, over={0}, away=1000, seconds=50.0)
    executor = mapping(made)
    executor.map(abs, [0, 1])
    (kept,) = executor._maps
    begun = clock[0]
    with pytest.raises(UnreachableError):
        list(kept)
    assert 600 <= clock[0] - begun < 700
    clock[0] += 3600
    made.after, made.away = {1}, 2
    assert list(kept) == [0, 11]


@pytest.mark.parametrize("cancels", [True, False], ids=["cancelled", "the gateway does not answer"])
def test_each_value_of_a_map_that_can_never_run_says_why(clock: list[float], *, cancels: bool) -> None:
    """Also once its array is cancelled, which nothing says of the calls of an array."""
    made = Mapped(count=3, clock=clock, over={0}, row=row("Queued", reason="ExceedsCapacity", request="64"))
    made.cancel = Mapped.cancel.__get__(made) if cancels else raising(AWAY)  # type: ignore[method-assign]
    executor = mapping(made)
    values = executor.map(abs, [0, 1, 2])
    executor.shutdown()
    assert made.row.phase == ("Cancelled" if cancels else "Queued")
    assert next(values) == 0
    for _ in range(2):
        with pytest.raises(FunctionFailedError, match="can never start here"):
            list(executor._maps[0])
    executor.shutdown()


def test_values_that_end_in_another_order_come_in_that_of_the_arguments(clock: list[float]) -> None:
    made = Mapped(count=3, clock=clock, over={0, 1, 2})
    made.as_completed = lambda **_: iter(  # type: ignore[method-assign]
        SimpleNamespace(index=index, value=lambda index=index: index * 11) for index in (2, 0, 1)
    )
    assert list(mapping(made).map(abs, [0, 1, 2])) == [0, 11, 22]


def test_the_end_of_an_executor_waits_for_a_map_beyond_the_time_of_its_values(clock: list[float]) -> None:
    made = Mapped(count=2, clock=clock, over={0})
    executor = mapping(made)
    assert next(executor.map(abs, [0, 1], timeout=30)) == 0
    made.after = {1}
    executor.shutdown()
    assert made.waited == [30, None]


def test_a_map_of_nothing_asks_nothing_and_one_of_several_iterables_ends_with_the_shortest() -> None:
    asked: list[Any] = []
    client = SimpleNamespace(map=lambda _function, *columns, **options: asked.append((columns, options)) or [])
    executor = Executor(client, image="x")  # type: ignore[arg-type]
    assert list(executor.map(pow, [])) == []
    assert asked == []
    executor.map(pow, [1, 2, 3], [4, 5])
    ((columns, options),) = asked
    assert (list(map(tuple, columns)), options) == ([(1, 2), (4, 5)], {"answer_seconds": 0, "image": "x"})
