"""Waits and renewals in virtual time: how often is asked, for how long, and what ends them."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dovetail.answers.jobs import JobDetails, JobRow
from dovetail.answers.v1 import Allocated, GPUConfig
from dovetail.answers.v2 import Task, TaskList
from dovetail.sdk import errors
from dovetail.sdk.aio import jobs as jobs_module
from dovetail.sdk.aio import runtime, tasks
from dovetail.sdk.aio.allocations import AsyncAllocation
from dovetail.sdk.aio.jobs import AsyncJob
from dovetail.sdk.aio.manager import AsyncGPUResourceManager
from dovetail.sdk.aio.tasks import AsyncTaskClient
from dovetail.sdk.blocking import jobs as blocking_jobs
from dovetail.sdk.blocking import runtime as threads
from dovetail.sdk.blocking.jobs import Job
from dovetail.sdk.calls.call import Call
from tests import virtual_time
from tests.sdk.test_views import ROW
from tests.virtual_time import clock

Answer = Any
BUSY = errors.BusyError("the view is not complete", status=503)
GONE = errors.NotFoundError("there is no such job", status=404)


class Gateway:
    """A transport whose answers come from a script, the last one again and again; errors are raised."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, str, Any]] = []

    async def send(self, call: Call[Any]) -> Any:
        return self.answer(call)

    def answer(self, call: Call[Any]) -> Any:
        self.asked.append((clock() - 1000, call.name, call.body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def times(self) -> list[float]:
        return [round(at, 2) for at, _, _ in self.asked]


def row(phase: str, **changes: Any) -> JobRow:
    return msgspec.structs.replace(ROW, **{"phase": phase, "message": "", **changes})


def details(phase: str, **changes: Any) -> JobDetails:
    return JobDetails(row=row(phase, **changes), spec={}, status={"phase": phase})


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        monotonic = staticmethod(clock)

    for module in (jobs_module, tasks, blocking_jobs):
        monkeypatch.setattr(module, "time", Clock)
    monkeypatch.setattr(threads, "sleep", virtual_time.pass_by)


Waited = Callable[..., Any]


@pytest.fixture(params=["aio", "blocking"])
def waited(request: pytest.FixtureRequest) -> Waited:
    """Waits for a job of the gateway, as one face of the SDK does."""

    def wait(gateway: Gateway, *, submitted: bool = False, **options: Any) -> Any:
        async def until_then() -> Any:
            if request.param == "blocking":
                transport: Any = SimpleNamespace(send=gateway.answer)
                return Job(row("Queued"), transport=transport, submitted=submitted).wait(progress=False, **options)
            made = AsyncJob(row("Queued"), transport=gateway, submitted=submitted)  # type: ignore[arg-type]
            return await made.wait(progress=False, **options)

        return virtual_time.run(until_then())

    return wait


def test_a_wait_asks_soon_at_first_and_every_five_seconds_at_last(waited: Waited) -> None:
    gateway = Gateway(*[details("Queued")] * 20, details("Succeeded"))
    assert waited(gateway) == "Succeeded"
    gaps = [round(after - before, 2) for before, after in zip(gateway.times, gateway.times[1:], strict=False)]
    assert gaps[:4] == [0.2, 0.3, 0.45, 0.67]
    assert gaps == sorted(gaps)
    assert gaps[-10:] == [5.0] * 10


@pytest.mark.parametrize("seconds", [0, 0.1, 1, 7.5])
def test_a_wait_ends_at_its_time_and_after_a_last_look(seconds: float, waited: Waited) -> None:
    gateway = Gateway(details("Queued", position=4))
    with pytest.raises(
        errors.WaitTimeoutError, match=rf"within {seconds:g} s: Job 7 is Queued \(position 4\)$"
    ) as caught:
        waited(gateway, timeout_seconds=seconds)
    assert gateway.times[-1] == seconds
    assert caught.value.seconds == seconds


@pytest.mark.parametrize(
    ("phases", "wanted", "found"),
    [
        (["Queued", "Starting", "Running"], "Running", "Running"),
        (["Queued", "Failed"], "Running", "Failed"),
        (["Queued", "Running", "TimedOut"], None, "TimedOut"),
        (["Running", "Preempted", "Cancelled"], None, "Cancelled"),
        (["Held"], "Held", "Held"),
    ],
)
def test_a_wait_ends_with_the_phase_or_the_end(
    phases: list[str], wanted: str | None, found: str, waited: Waited
) -> None:
    gateway = Gateway(*map(details, phases))
    assert waited(gateway, phase=wanted) == found
    assert len(gateway.asked) == len(phases)


def test_a_new_job_may_be_missing_for_five_seconds_and_no_longer(waited: Waited) -> None:
    gateway = Gateway(GONE)
    with pytest.raises(errors.NotFoundError):
        waited(gateway, submitted=True)
    assert 4.9 <= gateway.times[-1] <= 5.1
    assert len(gateway.asked) > 50


@pytest.mark.parametrize(("submitted", "answers"), [(False, [GONE]), (True, [details("Queued"), GONE])])
def test_a_job_that_was_seen_or_is_not_new_is_missing_at_once(
    submitted: bool, answers: list[Answer], waited: Waited
) -> None:
    gateway = Gateway(*answers)
    with pytest.raises(errors.NotFoundError):
        waited(gateway, submitted=submitted)
    assert len(gateway.asked) == len(answers)


def task(status: str, message: str = "") -> Task:
    return Task(
        task_id="train-1", type="training", status=status, device="cuda:0", node=None, message=message,
        created_at="", started_at=None, finished_at=None,
    )  # fmt: skip


def of_tasks(gateway: Gateway, act: Callable[[AsyncTaskClient], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        client = AsyncTaskClient("http://127.0.0.1:1", token="t")
        client._transport = gateway  # type: ignore[assignment]
        return await act(client)

    return virtual_time.run(run())


@pytest.mark.parametrize("ended", ["completed", "failed", "cancelled"])
def test_a_task_is_waited_for_to_its_end_or_a_state(ended: str) -> None:
    gateway = Gateway(task("pending"), task("running"), task(ended))
    assert of_tasks(gateway, lambda client: client.wait("train-1")).status == ended
    assert gateway.times == [0.0, 0.5, 1.0]
    gateway = Gateway(task("pending"), task("running"), task(ended))
    assert of_tasks(gateway, lambda client: client.wait("train-1", status="running")).status == "running"
    gateway = Gateway(task("pending"), task(ended))
    assert of_tasks(gateway, lambda client: client.wait("train-1", status="running")).status == ended


def test_a_task_that_is_not_there_in_time_says_what_it_waits_for() -> None:
    gateway = Gateway(task("pending", "Need 1 GPU"))
    with pytest.raises(errors.WaitTimeoutError, match=r"^task train-1 is not running within 2 s: Need 1 GPU$"):
        of_tasks(gateway, lambda client: client.wait("train-1", status="running", timeout_seconds=2))
    assert gateway.times[-1] == 2.0


def test_tasks_come_from_all_pages_in_their_order() -> None:
    pages = [
        TaskList(tasks=[task("pending"), task("running")], total=3, next="c1"),
        TaskList(tasks=[task("failed")], total=3, next=None),
    ]
    gateway = Gateway(*pages)
    found = of_tasks(gateway, lambda client: client.tasks(status="pending"))
    assert [each.status for each in found] == ["pending", "running", "failed"]
    assert len(gateway.asked) == 2


SPEC = {"gpu": "1", "reservation": {"durationSeconds": 600}}


def held(gateway: Gateway, *, seconds: float, lease_seconds: int = 600, fails: bool = False) -> AsyncAllocation:
    """An allocation whose block lasted so long."""
    spec = {**SPEC, "reservation": {"durationSeconds": lease_seconds}}
    made = AsyncAllocation(
        gateway,
        namespace="red",
        name="hold-1",
        spec=spec,
        timeout_seconds=None,
        progress=False,  # type: ignore[arg-type]
    )

    async def hold() -> None:
        async with made:
            await asyncio.sleep(seconds)
            if fails:
                raise ZeroDivisionError

    async def hold_and_go_on() -> None:
        try:
            await hold()
        finally:
            # Nothing is renewed after the end of the block.
            await asyncio.sleep(2 * lease_seconds)

    virtual_time.run(hold_and_go_on())
    return made


CREATED, RUNS, CHANGE = row("Queued"), details("Running"), "PATCH /api/v3/jobs/red/hold-1"
DELETE = "DELETE /api/v3/jobs/red/hold-1"


def renewals(gateway: Gateway) -> list[float]:
    return [round(at) for at, name, _ in gateway.asked if name == CHANGE]


def test_a_lease_is_renewed_each_third_of_it_and_released_once() -> None:
    gateway = Gateway(CREATED, RUNS, row("Running"))
    held(gateway, seconds=999)
    assert renewals(gateway) == [200, 400, 600, 800]
    assert [body for _, name, body in gateway.asked if name == CHANGE] == [{"renew": True}] * 4
    assert [name for _, name, _ in gateway.asked if name.startswith("DELETE")] == [DELETE]
    assert gateway.asked[-1][1] == DELETE


@pytest.mark.parametrize(("lease_seconds", "again"), [(600, 30), (30, 1.5), (60, 3)])
def test_a_renewal_that_fails_is_made_again_before_the_lease_ends(
    lease_seconds: int, again: float, caplog: pytest.LogCaptureFixture
) -> None:
    away = errors.UnreachableError("http://gw", call="c", problem="p", attempts=3)
    gateway = Gateway(CREATED, RUNS, BUSY, away, row("Running"))
    made = held(gateway, seconds=lease_seconds / 3 + 2 * again + 0.1, lease_seconds=lease_seconds)
    first = lease_seconds / 3
    at = [at for at, name, _ in gateway.asked if name == CHANGE]
    assert at == pytest.approx([first, first + again, first + 2 * again])
    assert caplog.text.count("the lease of allocation hold-1 is not renewed") == 2
    made.check()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (row("Cancelled", message="gcancel by rita"), "gcancel by rita"),
        (row("TimedOut"), "it is TimedOut"),
        (row("Failed"), "it is Failed"),
        (row("Succeeded"), "it is Succeeded"),
        (GONE, "it was deleted"),
    ],
)
def test_an_allocation_that_ends_elsewhere_is_lost_and_renewed_no_more(answer: Answer, why: str) -> None:
    gateway = Gateway(CREATED, RUNS, answer, row("Running"))
    made = held(gateway, seconds=1000)
    assert renewals(gateway) == [200]
    with pytest.raises(errors.AllocationLostError, match=rf"hold-1 no longer holds its GPUs: {why}$"):
        made.check()


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Preempted", "Suspended"])
def test_an_allocation_that_waits_again_is_renewed(phase: str) -> None:
    gateway = Gateway(CREATED, RUNS, row(phase))
    held(gateway, seconds=500).check()
    assert renewals(gateway) == [200, 400]


def test_a_release_that_fails_hides_no_error_of_the_block_and_is_one_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ZeroDivisionError):
        held(Gateway(CREATED, RUNS, BUSY), seconds=1, fails=True)
    assert "allocation hold-1 is not released and ends with its lease of 600 s" in caplog.text
    with pytest.raises(errors.BusyError):
        held(Gateway(CREATED, RUNS, BUSY), seconds=1)


def test_a_request_that_got_no_answer_is_withdrawn() -> None:
    """The gateway may have received it."""
    gateway = Gateway(BUSY)
    with pytest.raises(errors.BusyError):
        held(gateway, seconds=1)
    assert [name for _, name, _ in gateway.asked] == ["POST /api/v3/jobs", DELETE]


def test_before_its_block_an_allocation_holds_nothing() -> None:
    made = AsyncAllocation(
        Gateway(GONE),
        namespace="red",
        name="h",
        spec=SPEC,
        timeout_seconds=None,
        progress=None,  # type: ignore[arg-type]
    )
    assert (made.devices, made.nodes, made.visible_devices) == ([], [], "")


ALLOCATED = Allocated(
    success=True,
    node_name="b",
    allocation_id="alloc-1",
    gpu_config=GPUConfig(
        gpu_count=1, gpu_type="V100", memory_gb=32, nodes=["b"], devices=[], visible_devices="", mixed_precision=False,
        distributed_training=False, gpu_memory_fraction=None, namespace="red", expires_at=None,
    ),
)  # fmt: skip


def test_an_allocation_of_a_day_is_renewed_each_hour_and_after_a_minute_if_that_fails() -> None:
    gateway = Gateway(row("Running"), BUSY, row("Running"))

    async def run() -> None:
        manager = AsyncGPUResourceManager("http://127.0.0.1:1", token="t")
        manager._transport = gateway  # type: ignore[assignment]
        async with manager.renewed(ALLOCATED):
            await asyncio.sleep(3 * 3600)

    virtual_time.run(run())
    assert gateway.asked == [(at, "PATCH /api/v3/jobs/red/alloc-1", {"renew": True}) for at in (3600.0, 7200.0, 7260.0)]


def test_what_is_released_elsewhere_is_no_longer_held() -> None:
    gateway = Gateway(GONE)

    async def run() -> list[Allocated]:
        manager = AsyncGPUResourceManager("http://127.0.0.1:1", token="t")
        manager._transport = gateway  # type: ignore[assignment]
        manager._held = [ALLOCATED]
        with pytest.raises(errors.NotFoundError):
            await manager.release(ALLOCATED)
        return manager.allocations

    assert virtual_time.run(run()) == [ALLOCATED], "an error says nothing of the GPUs"


class TestPeriodic:
    def test_it_calls_at_the_times_that_the_action_says_and_ends_with_none(self) -> None:
        at = list[float]()

        async def run() -> None:
            pauses = iter([2.0, 3.0, None])

            async def action() -> float | None:
                at.append(clock() - 1000)
                return next(pauses)

            periodic = runtime.Periodic(action)
            periodic.start(after_seconds=1)
            await asyncio.sleep(60)
            await periodic.stop()
            await periodic.stop()

        virtual_time.run(run())
        assert at == [1.0, 3.0, 6.0]

    @pytest.mark.parametrize("after_seconds", [5, 100])
    def test_its_end_comes_at_once_also_in_the_middle_of_a_call(self, after_seconds: float) -> None:
        async def run() -> float:
            async def action() -> None:
                await asyncio.sleep(1000)

            periodic = runtime.Periodic(action)
            periodic.start(after_seconds=after_seconds)
            await asyncio.sleep(10)
            await periodic.stop()
            return clock() - 1000

        assert virtual_time.run(run()) == 10

    def test_the_thread_of_the_blocking_one_ends_before_its_first_call_and_after_its_last(self) -> None:
        called = list[float | None]()
        never = threads.Periodic(lambda: called.append(0))
        never.start(after_seconds=600)
        never.stop()
        assert called == []
        pauses, done = iter([0.0, 0.0, None]), threading.Event()

        def action() -> float | None:
            called.append(next(pauses))
            if called[-1] is None:
                done.set()
            return called[-1]

        periodic = threads.Periodic(action)
        periodic.start(after_seconds=0)
        assert done.wait(60)
        periodic.stop()
        periodic.stop()
        assert called == [0.0, 0.0, None]
        assert not [each for each in threading.enumerate() if each.name == "dovetail-lease" and each.is_alive()]

    def test_a_call_that_hangs_keeps_no_block_from_ending(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "_STOP_SECONDS", 0.05)
        begun, release = threading.Event(), threading.Event()

        def action() -> float | None:
            begun.set()
            release.wait(60)
            return None

        periodic = threads.Periodic(action)
        periodic.start(after_seconds=0)
        assert begun.wait(60)
        thread = periodic._thread
        assert thread is not None
        assert thread.daemon, "a script that forgets the allocation still ends"
        before = time.monotonic()
        periodic.stop()
        assert time.monotonic() - before < 30
        release.set()
        thread.join(60)


class TestCancelled:
    def test_work_is_finished_in_spite_of_a_cancellation(self) -> None:
        happened = list[str]()

        async def work() -> None:
            await asyncio.sleep(5)
            happened.append("finished")

        async def run() -> None:
            task = asyncio.create_task(runtime.finish(work))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            happened.append("cancelled")

        virtual_time.run(run())
        assert happened == ["finished", "cancelled"]

    @pytest.mark.parametrize("problem", [None, BUSY])
    def test_what_comes_during_a_cancellation_is_undone(self, problem: Exception | None) -> None:
        undone = list[int]()

        async def work() -> int:
            await asyncio.sleep(5)
            if problem:
                raise problem
            return 7

        async def undo(result: int) -> None:
            undone.append(result)

        async def run() -> None:
            assert problem or await runtime.settled(work, undo=undo) == 7
            assert undone == []
            task = asyncio.create_task(runtime.settled(work, undo=undo))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        virtual_time.run(run())
        assert undone == ([] if problem else [7])


def test_a_forked_child_renews_and_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(CREATED, RUNS, row("Running"))
    parent = os.getpid()
    made = AsyncAllocation(
        gateway,
        namespace="red",
        name="hold-1",
        spec=SPEC,
        timeout_seconds=None,
        progress=False,  # type: ignore[arg-type]
    )

    async def hold() -> None:
        async with made:
            monkeypatch.setattr(os, "getpid", lambda: parent + 1)
            await asyncio.sleep(1000)

    virtual_time.run(hold())
    assert [name for _, name, _ in gateway.asked] == ["POST /api/v3/jobs", "GET /api/v3/jobs/red/train"]
