"""The scheduling loop in virtual time: when it runs a cycle, and what it does when something fails."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import wants_admission
from dovetail.kube.retry import BACKOFF
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.metrics import make_counters
from dovetail_operator.queue import loop
from dovetail_operator.queue.cycle import Cycle, survey
from dovetail_operator.queue.loop import SchedulingLoop
from dovetail_operator.state.state import State
from tests.operator_.builders import LET_GO, NOW, at, make_child, make_job, make_pod, make_state
from tests.operator_.queue.test_quotas import make_quota
from tests.virtual_time import run

CYCLES = "dovetail_queue_cycle_duration_seconds_count"


class Counting:
    """Numbers without an API server: `fails` is how often in a row a write fails."""

    def __init__(self) -> None:
        self.fails = 0
        self.asked: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def give(self, jobs: Iterable[GPUJob], *, shown: Iterable[GPUJob]) -> dict[str, int]:
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        self.meanwhile()
        if self.fails:
            self.fails -= 1
            raise RuntimeError
        return {job.metadata.uid: number for number, job in enumerate(jobs, start=1)}


class Rig:
    """A loop over a node with one GPU; its clock goes only if it `ticks`."""

    def __init__(self, *, gpus: int = 1, ticks: bool = False) -> None:
        self._started = asyncio.get_running_loop().time()
        self._ticks = ticks
        self.state: State = make_state(a=gpus)
        self.numbers = Counting()
        self.changed: list[str] = []
        self.admitted: list[str] = []
        self.busy_until = 0.0
        self.registry = CollectorRegistry()
        self.loop = SchedulingLoop(
            self.state,
            numbers=self.numbers,  # type: ignore[arg-type]  # the one method that is called
            counters=make_counters(self.registry),
            changed=self.changed.append,
            admitted=self.admitted.append,
            now=self._now,
            rng=random.Random(7),
            is_busy=lambda: asyncio.get_running_loop().time() < self._started + self.busy_until,
        )

    def _now(self) -> datetime:
        passed = asyncio.get_running_loop().time() - self._started
        return NOW + timedelta(seconds=passed if self._ticks else 0)

    def put(self, name: str, *, numbered: bool = True, **spec: Any) -> GPUJob:
        job = make_job(name, status={"number": 1} if numbered else {}, **spec)
        self.state.store.job_changed(job)
        return job

    def fill(self, *, seconds: int | None = None) -> None:
        """A running job takes the node, with a time limit or without."""
        job = self.put("runs", activeDeadlineSeconds=seconds)
        status = None if seconds is None else {"startTime": at(0)}
        self.state.store.child_changed(make_child(job, uid="child-runs", status=status))
        meta = {"labels": {"dovetail.dev/job": "runs"}, "uid": "pod-runs"}
        self.state.store.pod_event("ADDED", make_pod(node="a", devices=1, owner="child-runs", meta=meta))

    @property
    def cycles(self) -> int:
        return int(self.registry.get_sample_value(CYCLES) or 0)

    def verdict(self, name: str) -> Waits:
        found = self.state.decisions.verdicts[f"uid-{name}"]
        assert isinstance(found, Waits)
        return found


def play(rig: Callable[[], Rig], scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> Rig:
    """Run the scenario next to the loop."""

    async def together() -> Rig:
        made = rig()
        task = asyncio.create_task(made.loop.run())
        await scenario(made)
        assert not task.done()
        task.cancel()
        return made

    return run(together())


def test_it_begins_with_a_cycle_and_runs_no_other_while_nothing_changes() -> None:
    async def scenario(rig: Rig) -> None:
        await asyncio.sleep(0)
        assert rig.cycles == 0
        await asyncio.sleep(3600)

    assert play(Rig, scenario).cycles == 1


def test_a_new_job_gets_a_number_and_may_start_in_the_same_cycle() -> None:
    async def scenario(rig: Rig) -> None:
        rig.put("x", numbered=False)
        await asyncio.sleep(1)

    rig = play(Rig, scenario)
    assert (rig.changed, rig.admitted) == ([], ["team/x"])
    assert rig.state.decisions.numbers == {"uid-x": 1}
    assert isinstance(rig.state.decisions.verdicts["uid-x"], Admitted)


def test_a_job_that_gets_a_number_and_no_verdict_is_reconciled_too() -> None:
    async def scenario(rig: Rig) -> None:
        rig.put("held", numbered=False, suspend=True)
        await asyncio.sleep(1)

    rig = play(Rig, scenario)
    assert (rig.changed, rig.admitted) == (["team/held"], [])


def test_a_job_that_gets_its_number_before_the_cycle_fails_is_reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the cycle fails")

    async def scenario(rig: Rig) -> None:
        monkeypatch.setattr(loop, "survey", fail)
        rig.put("x", numbered=False)
        await asyncio.sleep(1)

    assert play(Rig, scenario).changed == ["team/x"]


def test_the_queue_is_woken_when_a_job_has_waited_long_enough_for_busy_gpus() -> None:
    seen: list[Verdict] = []

    async def scenario(rig: Rig) -> None:
        rig.fill()
        job = make_job(
            "x", status={"number": 2, "gpuWaitStartTime": at(0)}, onNoGPU="RunOnCPU", onNoGPUAfterSeconds=605
        )
        rig.state.store.job_changed(job)
        # Nothing else is due then: figures are renewed every 30 s.
        for seconds in (604, 2):
            await asyncio.sleep(seconds)
            seen.append(rig.state.decisions.verdicts["uid-x"])

    play(partial(Rig, ticks=True), scenario)
    before, after = seen
    assert isinstance(before, Waits)
    assert isinstance(after, Admitted)
    assert after.on_cpu


def test_a_cycle_says_when_the_next_one_is_due_and_not_sooner_than_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    due, seen = [[40.0, 0.0], [40.0]], list[int]()

    def surveyed(*args: Any, **options: Any) -> Cycle:
        cycle = survey(*args, **options)
        cycle.timers.extend(due.pop(0) if due else [])
        return cycle

    monkeypatch.setattr(loop, "survey", surveyed)

    async def scenario(rig: Rig) -> None:
        for seconds in (0.5, 1.0, 38.0, 3.0, 3600):
            await asyncio.sleep(seconds)
            seen.append(rig.cycles)

    play(Rig, scenario)
    assert seen == [1, 2, 2, 3, 3]


def test_a_new_default_of_its_namespace_reaches_a_job_that_waits() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.put("x")
        await asyncio.sleep(10)
        assert rig.changed.count("team/x") == 1
        rig.state.cpu_fallback = {"team": 600}
        rig.loop.rules_changed()
        await asyncio.sleep(10)

    assert play(Rig, scenario).changed.count("team/x") == 2


def test_a_job_counts_once_in_the_mix_when_it_gets_its_number_and_a_gang_as_its_workers() -> None:
    async def scenario(rig: Rig) -> None:
        rig.put("known", gpu="1")
        rig.put("gang", numbered=False, gpu="1", workers=3)
        rig.put("share", numbered=False, gpu="0.5")
        rig.put("unreadable", numbered=False, gpu="many")
        await asyncio.sleep(1)
        rig.put("gang", gpu="1", workers=3, meta={"resourceVersion": "9"})
        rig.loop.jobs_changed()
        await asyncio.sleep(60)

    counted = play(partial(Rig, gpus=4), scenario).state.mix.term.record().counted
    assert {(each.gpus, each.share_milli): round(each.weight) for each in counted} == {(1, 1000): 3, (1, 500): 1}


@pytest.mark.parametrize("later", [None, "uid-later"], ids=["gone", "replaced"])
def test_a_job_that_goes_while_it_gets_its_number_keeps_the_numbers_of_no_other_back(later: str | None) -> None:
    async def scenario(rig: Rig) -> None:
        rig.put("first", numbered=False)
        rig.put("second", numbered=False)

        def goes() -> None:
            rig.state.store.job_deleted("team/first", uid="uid-first")
            if later is not None:
                rig.numbers.meanwhile = lambda: None
                rig.put("first", meta={"uid": later})

        rig.numbers.meanwhile = goes
        await asyncio.sleep(1)

    assert play(Rig, scenario).state.decisions.numbers == {"uid-second": 2}


def test_failed_cycles_are_tried_again_with_growing_pauses_that_end_with_the_first_success() -> None:
    async def scenario(rig: Rig) -> None:
        rig.numbers.fails = 3
        rig.put("x", numbered=False)
        await asyncio.sleep(100)
        rig.numbers.fails = 1
        rig.put("y", numbered=False)
        rig.loop.jobs_changed()
        await asyncio.sleep(100)

    asked = play(Rig, scenario).numbers.asked
    rng = random.Random(7)
    expected = [BACKOFF.seconds(attempt, rng=rng) for attempt in (0, 1, 2, 0)]
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert len(asked) == 6
    # 0.05 s collect the requests of a burst, and 0.2 s soon after a cycle.
    bursts = [0.2 if each < 0.5 else 0.05 for each in expected]
    assert [*pauses[:3], pauses[4]] == pytest.approx(
        [each + burst for each, burst in zip(expected, bursts, strict=True)]
    )


def test_room_that_changes_brings_a_cycle_soon_only_while_a_job_waits() -> None:
    async def scenario(rig: Rig) -> None:
        await asyncio.sleep(10)
        rig.loop.room_changed()
        await asyncio.sleep(1)
        assert rig.cycles == 1
        await asyncio.sleep(9)
        assert rig.cycles == 2
        rig.fill()
        rig.put("x")
        rig.loop.jobs_changed()
        await asyncio.sleep(1)
        assert rig.cycles == 3
        rig.loop.room_changed()
        await asyncio.sleep(1)
        assert rig.cycles == 4

    play(Rig, scenario)


def test_changed_limits_renew_the_messages_that_quote_them_at_once_and_only_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.state.store.quotas.update(make_quota(limit={"gpus": 0}))
        rig.put("x")
        rig.loop.jobs_changed()
        await asyncio.sleep(2)
        assert "may run 0 GPUs" in rig.verdict("x").message
        rig.state.store.quotas.update(make_quota(limit={"gpus": 0}, namespaces=["team"]))
        rig.loop.jobs_changed()
        await asyncio.sleep(2)
        before = rig.verdict("x").message
        assert "Namespace team" not in before
        rig.loop.limits_changed()
        await asyncio.sleep(2)
        assert "Namespace team" in rig.verdict("x").message
        rig.state.store.quotas.update(make_quota(limit={"gpus": 0}))
        rig.loop.jobs_changed()
        await asyncio.sleep(2)
        assert "Namespace team" in rig.verdict("x").message

    play(Rig, scenario)


def test_a_message_that_is_held_back_is_outdated_once_the_one_before_is_true_again() -> None:
    async def scenario(rig: Rig) -> None:
        for namespaces, is_news in (([], False), (["team"], True), ([], False)):
            rig.state.store.quotas.update(make_quota(limit={"gpus": 0}, namespaces=namespaces))
            rig.put("x")
            rig.loop.jobs_changed()
            await asyncio.sleep(2)
            assert "Namespace team" not in rig.verdict("x").message
            assert (rig.loop._updates.latest("uid-x") != rig.verdict("x")) is is_news

    play(Rig, scenario)


def test_changed_limits_renew_no_message_that_quotes_none() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.put("x", gpu=1)
        await asyncio.sleep(2)
        known = rig.verdict("x")
        rig.put("y", priority=99)
        rig.loop.limits_changed()
        await asyncio.sleep(2)
        assert rig.verdict("x").message == known.message
        assert rig.changed.count("team/x") == 1

    play(Rig, scenario)


def test_a_job_that_waits_no_more_keeps_no_verdict() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.put("x")
        await asyncio.sleep(1)
        assert list(rig.state.decisions.verdicts) == ["uid-x"]
        rig.state.store.job_deleted("team/x", uid="uid-x")
        rig.loop.jobs_changed()
        await asyncio.sleep(1)
        assert rig.state.decisions.verdicts == {}

    play(Rig, scenario)


def test_a_long_search_for_one_job_leaves_the_event_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, the operator cannot renew its Lease during the search, and loses it."""
    decide, turns, seen = loop.decide, list[int](), list[int]()

    def search(*args: Any, pause: Callable[[], None], **options: Any) -> Iterator[Verdict]:
        for step in range(100):
            asyncio.get_running_loop().call_soon(turns.append, step)
            pause()
            seen.append(len(turns))
        yield from decide(*args, pause=pause, **options)

    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.put("x")
        await asyncio.sleep(0.1)
        assert rig.verdict("x").reason == "Resources"

    monkeypatch.setattr(loop, "decide", search)
    monkeypatch.setattr("dovetail_operator.queue.time_slices.SLICE_SECONDS", 0.0)
    play(Rig, scenario)
    assert seen[:100] == list(range(1, 101))


def test_a_job_on_which_the_cycle_fails_is_marked_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(job: GPUJob, child: Job | None) -> bool:
        if job.metadata.name == "odd":
            raise AttributeError
        return wants_admission(job, child=child)

    monkeypatch.setattr("dovetail_operator.queue.cycle.wants_admission", failing)

    async def scenario(rig: Rig) -> None:
        rig.put("odd")
        rig.put("x")
        await asyncio.sleep(1)

    rig = play(Rig, scenario)
    assert (rig.changed, rig.admitted) == (["team/odd"], ["team/x"])


def test_a_job_that_waits_gets_its_reason_and_an_estimate_of_its_start_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill(seconds=3600)
        rig.put("x")
        await asyncio.sleep(5)
        place = rig.verdict("x").queue
        assert place is not None
        assert place.estimated_start == at(3630)

    assert play(Rig, scenario).changed == ["team/x"]


@pytest.mark.parametrize(
    ("busy_seconds", "after_seconds", "estimated"),
    [(5.0, 4, False), (5.0, 8, True), (3600.0, 8, False), (3600.0, 15, True)],
)
def test_estimates_leave_a_rush_to_the_statuses_but_not_for_ever(
    busy_seconds: float, after_seconds: float, estimated: bool
) -> None:
    async def scenario(rig: Rig) -> None:
        rig.busy_until = busy_seconds
        rig.fill(seconds=3600)
        rig.put("x")
        await asyncio.sleep(after_seconds)
        assert ("uid-x" in rig.loop._estimates.places) == estimated

    play(Rig, scenario)


@pytest.mark.parametrize(("after_seconds", "estimated"), [(25, False), (40, True)])
def test_an_estimate_that_a_rush_has_delayed_comes_with_the_next_numbers(after_seconds: float, estimated: bool) -> None:
    async def scenario(rig: Rig) -> None:
        rig.busy_until = 5.0
        rig.fill(seconds=3600)
        rig.put("x")
        await asyncio.sleep(2)
        assert rig.changed == ["team/x"], "the reason waits a second for it"
        await asyncio.sleep(after_seconds - 2)
        place = rig.verdict("x").queue
        assert place is not None
        assert (place.estimated_start is not None) == estimated

    assert len(play(Rig, scenario).changed) == 1 + estimated


def test_the_jobs_that_were_ended_in_a_rush_are_reconciled_again_when_it_is_over() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        boss = rig.put("boss")
        made = {"number": 1, "phase": "Preempted", "preemption": {"by": "uid-boss", "count": 1, "lastTime": at(0)}}
        for number in range(64):
            rig.state.store.job_changed(make_job(f"ended-{number}", status=made))
        await asyncio.sleep(5)
        assert rig.state.decisions.is_rush
        rig.state.store.job_deleted("team/boss", uid=boss.metadata.uid)
        rig.loop.jobs_changed()
        await asyncio.sleep(10)
        assert rig.state.decisions.is_rush
        rig.changed.clear()
        await asyncio.sleep(10)
        assert not rig.state.decisions.is_rush
        assert sorted(rig.changed) == sorted(f"team/ended-{number}" for number in range(64))

    play(partial(Rig, ticks=True), scenario)


def test_without_a_waiting_job_nothing_is_estimated() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        await asyncio.sleep(3600)

    assert play(Rig, scenario).cycles == 1


def test_a_cycle_ends_with_the_notices_of_the_jobs_that_others_preempt() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.state.preemption = Rules(gap=10, min_run_seconds=0)
        status = {"number": 1, "phase": "Running", "startTime": at(-600)}
        rig.state.store.job_changed(make_job("runs", status=status, meta={"resourceVersion": "11"}))
        rig.put("boss", priority=90)
        await asyncio.sleep(1)
        assert list(rig.state.decisions.notices) == ["uid-runs"]

    assert "team/runs" in play(Rig, scenario).changed


def test_a_verdict_that_stays_the_same_marks_no_job_again() -> None:
    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.put("x")
        rig.state.decisions.set_verdict("uid-other", verdict=LET_GO)
        for _ in range(5):
            rig.loop.jobs_changed()
            await asyncio.sleep(10)

    rig = play(Rig, scenario)
    assert rig.changed.count("team/x") <= 2, "its first verdict, and its first estimate"


@pytest.mark.parametrize(("waits", "seconds"), [(True, 9), (False, 24)])
def test_a_long_cycle_leaves_most_of_the_time_to_other_work(waits: bool, seconds: int) -> None:
    async def scenario(*, urgent_after: float | None) -> float:
        loop, rig = asyncio.get_running_loop(), Rig()
        rig.loop._some_job_waits = waits
        start = loop.time()
        if urgent_after is not None:
            loop.call_later(urgent_after, rig.loop.jobs_changed)
        await rig.loop._rest(1.0)
        return round(loop.time() - start, 3)

    assert run(scenario(urgent_after=None)) == seconds
    assert run(scenario(urgent_after=6)) == 6, "a job's change comes sooner"
    assert run(scenario(urgent_after=1)) == 4, "but not at once"


def test_a_new_configuration_runs_a_cycle_in_which_all_jobs_are_read_again() -> None:
    runs: list[float] = []

    async def scenario(rig: Rig) -> None:
        rig.fill()
        rig.put("waits")
        rig.loop.jobs_changed()
        for seconds in (600, 1200):
            rig.state.run_times = RunTimes(default_seconds=seconds)
            rig.loop.rules_changed()
            await asyncio.sleep(30)
            known = rig.loop._caches.candidates.get("uid-waits")
            assert known is not None
            runs.append(known.candidate.run_seconds)

    play(Rig, scenario)
    assert runs == [600, 1200]
