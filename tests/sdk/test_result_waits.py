"""Waits for results, with asyncio and without: when they end, what they read meanwhile, and what they say."""

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.sdk.aio.functions import as_completed as as_completed_soon
from dovetail.sdk.blocking.functions import as_completed
from dovetail.sdk.calls.call import Call
from dovetail.sdk.errors import (
    DovetailError,
    FunctionFailedError,
    WaitTimeoutError,
)
from tests import virtual_time
from tests.sdk.test_results import BEGIN, SENT, End, Gateway, Work, both, each_of, of, of_call, virtual
from tests.virtual_time import clock

__all__ = ["virtual"]


async def raised_by(made: Any) -> tuple[DovetailError, float]:
    """What a wait raises, and after how long."""
    with pytest.raises(DovetailError) as caught:
        await of(made())
    return caught.value, clock() - BEGIN


@both
@pytest.mark.parametrize("seconds", [0, 2.0, 7.5])
def test_a_result_that_does_not_come_in_time_says_how_many_are_missing(seconds: float, face: str) -> None:
    gateway = Gateway(work=[Work(seconds=1), Work(seconds=100)])

    async def waited() -> tuple[DovetailError, float]:
        return await raised_by(lambda: gateway.made(face).results(timeout_seconds=seconds))

    error, took = virtual_time.run(waited())
    assert isinstance(error, WaitTimeoutError)
    assert str(error).startswith(f"{1 if seconds else 2} of 2 calls of red/train have not ended within {seconds:g} s")
    assert seconds <= took < seconds + 0.2


@both
@pytest.mark.parametrize("seconds", [0, 7.5])
def test_the_result_of_a_gang_that_does_not_come_in_time_says_where_it_is(seconds: float, face: str) -> None:
    gateway = Gateway(work=[Work(seconds=1), Work(seconds=100)], is_map=False)

    async def waited() -> tuple[DovetailError, float]:
        return await raised_by(lambda: gateway.made(face).result(timeout_seconds=seconds))

    error, took = virtual_time.run(waited())
    assert str(error).startswith(f"red/train has no result within {seconds:g} s: Job 7 is Running")
    assert seconds <= took < seconds + 0.2


@both
def test_a_result_is_asked_for_twice_in_a_second_and_a_value_in_a_file_looked_for_more_often(
    face: str, tmp_path: Path
) -> None:
    gateway = Gateway(work=[Work(seconds=100)], is_map=False)
    folder = tmp_path / "call"

    async def waited() -> tuple[int, float]:
        made = gateway.made(face, sent=replace(SENT, folder=folder))
        await raised_by(lambda: made.result(timeout_seconds=10))
        asked = gateway.asked
        keep(folder, task=0, worker=0, work=gateway.work[0])
        begun = clock()
        assert await of(made.result()) == 0
        return asked, clock() - begun

    asked, took = virtual_time.run(waited())
    assert 15 <= asked <= 21
    assert took < 0.1


def keep(folder: Path, *, task: int, worker: int, work: Work) -> None:
    """Leave an outcome in a folder, as the runner does."""
    folder.mkdir(exist_ok=True)
    text = "".join(part.split(" ")[-1] for part in work.printed(task + worker)[3:6])
    (folder / f"outcome-{task}-{worker}").write_bytes(base64.b64decode(text))


@both
@pytest.mark.parametrize("end", ["value", "error"])
def test_a_job_is_done_once_every_worker_has_its_last_outcome(face: str, end: End, tmp_path: Path) -> None:
    """A value is final; an error counts when the job has ended, for it may be tried again."""
    gateway = Gateway(work=[Work(seconds=10), Work(seconds=10, end=end)], is_map=False)
    folder = tmp_path / "call"

    async def done() -> list[bool]:
        made = gateway.made(face, sent=replace(SENT, folder=folder))
        found = [await of(made.done())]
        for worker, work in enumerate(gateway.work):
            keep(folder, task=0, worker=worker, work=work)
            found.append(await of(made.done()))
        await asyncio.sleep(11)
        found.append(await of(made.done()))
        asked = gateway.asked
        found += [await of(made.done()), await of(made.exception()) is None]
        return [*found, gateway.asked == asked]

    assert virtual_time.run(done()) == [False, False, end == "value", True, True, end == "value", True]
    assert not folder.exists(), "an outcome that was read is removed"


@both
def test_of_two_readers_of_a_result_the_later_one_gets_it_too(face: str, tmp_path: Path) -> None:
    gateway = Gateway(work=[Work(seconds=1)], is_map=False)
    folder = tmp_path / "call"

    async def both_read() -> list[Any]:
        made = gateway.made(face, sent=replace(SENT, folder=folder))
        keep(folder, task=0, worker=0, work=gateway.work[0])
        send, found = gateway.answer, list[Any]()

        def answer(call: Call[Any]) -> Any:
            """The other reader is quicker: it has the value and has removed the file before this one looks again."""
            gateway.answer = send  # type: ignore[method-assign]
            keep(folder, task=0, worker=0, work=gateway.work[0])
            made._keep({0: made._sent.outcome(task=0, worker=0)})
            return send(call)

        (folder / "outcome-0-0").unlink()
        gateway.answer = answer  # type: ignore[method-assign]
        await asyncio.sleep(2)
        found.append(await of(made.result()))
        return [*found, await of(made.result())]

    assert virtual_time.run(both_read()) == [0, 0]


@both
def test_each_call_of_a_map_that_has_ended_has_the_outcome_in_its_file(face: str, tmp_path: Path) -> None:
    gateway = Gateway(work=[Work(seconds=5), Work(seconds=2, end="error"), Work(seconds=1, end="killed")])
    folder = tmp_path / "call"

    async def ended() -> dict[int, Any]:
        made = gateway.made(face, sent=replace(SENT, folder=folder))
        for task, work in enumerate(gateway.work[:2]):
            keep(folder, task=task, worker=0, work=work)
        return {call.index: of_call(call) async for call in each_of(made.as_completed())}

    assert virtual_time.run(ended()) == {index: work.outcome(index) for index, work in enumerate(gateway.work)}
    assert not folder.exists()


@both
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"message": "exit code 3", "reason": "Failed"}, "it is Failed and has no result: exit code 3"),
        ({"message": "", "reason": "DeadlineExceeded"}, "it is Failed and has no result: DeadlineExceeded"),
        ({"message": "", "reason": ""}, "it is Failed and has no result"),
    ],
)
def test_a_job_without_a_result_says_why_by_its_message_or_its_reason(
    face: str, said: dict[str, str], why: str
) -> None:
    gateway = Gateway(work=[Work(seconds=0, end="killed")], is_map=False, said=said)

    async def result() -> tuple[DovetailError, float]:
        return await raised_by(gateway.made(face).result)

    error, _ = virtual_time.run(result())
    assert isinstance(error, FunctionFailedError)
    assert error.problem == why


NEVER = {"phase": "Queued", "reason": "ExceedsCapacity", "request": "64", "message": "Need 64 GPUs"}


@both
@pytest.mark.parametrize("is_map", [True, False])
def test_a_job_that_can_never_start_is_not_waited_for(face: str, *, is_map: bool) -> None:
    gateway = Gateway(work=[Work(seconds=9), Work(seconds=9)], is_map=is_map, said=NEVER)

    async def result() -> tuple[DovetailError, float]:
        made = gateway.made(face)
        return await raised_by(made.results if is_map else made.result)

    error, took = virtual_time.run(result())
    assert isinstance(error, FunctionFailedError)
    assert error.problem == "it can never start here: Need 64 GPUs. Without a GPU: gpu=0, or cpu_fallback=True"
    assert took < 1


@both
def test_jobs_come_as_they_end(face: str) -> None:
    gateways = [Gateway(work=[Work(seconds=seconds)], is_map=False) for seconds in (7, 2, 4)]
    completed: Any = {"aio": as_completed_soon, "blocking": as_completed}[face]

    async def order() -> list[tuple[int, float]]:
        jobs = [each.made(face) for each in gateways]
        return [(jobs.index(job), round(clock() - BEGIN)) async for job in each_of(completed(jobs, timeout_seconds=99))]

    assert virtual_time.run(order()) == [(1, 2), (2, 4), (0, 7)]


@both
@pytest.mark.parametrize("seconds", [0, 5.0])
def test_jobs_that_do_not_end_in_time_are_counted(face: str, seconds: float) -> None:
    gateways = [Gateway(work=[Work(seconds=at)], is_map=False) for at in (1, 100, 100)]
    completed: Any = {"aio": as_completed_soon, "blocking": as_completed}[face]

    async def waited() -> tuple[DovetailError, float, int]:
        given, jobs = list[Any](), [each.made(face) for each in gateways]

        async def wait() -> None:
            async for job in each_of(completed(jobs, timeout_seconds=seconds)):
                given.append(job)

        return *await raised_by(wait), len(given)

    error, took, count = virtual_time.run(waited())
    assert isinstance(error, WaitTimeoutError)
    assert str(error).startswith(f"{3 - count} of 3 jobs have no result within {seconds:g} s: Job 7 is Running")
    assert count == int(seconds > 1)
    assert seconds <= took < seconds + 1


@both
def test_of_no_jobs_none_ends(face: str) -> None:
    completed: Any = {"aio": as_completed_soon, "blocking": as_completed}[face]

    async def all_of() -> list[Any]:
        return [job async for job in each_of(completed([]))]

    assert virtual_time.run(all_of()) == []
