"""When starts are estimated, and which estimates are dropped when limits change: in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dovetail.api.gpujob import QueuePlace
from dovetail.queue.verdicts import Verdict, Waits
from dovetail_operator.job.observation import Notice
from dovetail_operator.queue.cycle import BASIS_OF_PREEMPTION, Cycle
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.start_estimates import StartEstimates, estimates
from dovetail_operator.queue.verdict_updates import VerdictUpdates
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.operator_.builders import LET_GO, NOW, at, make_child, make_job, make_pod, make_state
from tests.virtual_time import run

UID = "uid-x"
WAITS = Waits(key=UID, reason="Resources", message="", queue=QueuePlace(position=1))


class Rig:
    """Estimates of a state whose one GPU is taken for an hour, and a job that waits for it."""

    def __init__(self) -> None:
        self.state: State = make_state(a=1)
        first = make_job("runs", status={"number": 1}, activeDeadlineSeconds=3600)
        self.state.store.job_changed(first)
        self.state.store.child_changed(make_child(first, uid="child-runs", status={"startTime": at(0)}))
        meta = {"labels": {"dovetail.dev/job": "runs"}, "uid": "pod-runs"}
        self.state.store.pod_event("ADDED", make_pod(node="a", devices=1, owner="child-runs", meta=meta))
        self.state.store.job_changed(make_job("x", status={"number": 2}))
        self.state.decisions.set_verdict(UID, verdict=WAITS)
        self.changed: list[str] = []
        self.wake_up = WakeUp()
        self.surveys: list[float] = []
        self.on_survey: Callable[[], object] = lambda: None
        self.updates = updates = VerdictUpdates(
            self.state.decisions, changed=self.changed.append, admitted=self.changed.append, wake_up=self.wake_up
        )
        caches = caches_for(self.state)
        self.estimates = StartEstimates(self.state, caches=caches, updates=updates, wake_up=self.wake_up, now=self._now)

    def _now(self) -> Any:
        self.surveys.append(asyncio.get_running_loop().time())
        self.on_survey()
        return NOW

    def say(self, **place: Any) -> None:
        """The job's verdict has this place in the queue."""
        self.state.decisions.set_verdict(UID, verdict=msgspec.structs.replace(WAITS, queue=QueuePlace(**place)))

    @property
    def place(self) -> QueuePlace:
        verdict = self.state.decisions.verdicts[UID]
        assert isinstance(verdict, Waits)
        assert verdict.queue is not None
        return verdict.queue

    async def estimate(self) -> None:
        self.estimates.request()
        await asyncio.sleep(10)


def play(scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> Rig:
    async def together() -> Rig:
        rig = Rig()
        task = asyncio.create_task(rig.estimates.run())
        await scenario(rig)
        assert not task.done()
        task.cancel()
        return rig

    return run(together())


def test_an_estimate_is_made_once_for_each_request_and_reaches_the_verdict() -> None:
    async def scenario(rig: Rig) -> None:
        await asyncio.sleep(100)
        assert rig.surveys == []
        await rig.estimate()
        assert rig.wake_up._timer is not None, "an estimate changes by time alone"
        await asyncio.sleep(100)

    rig = play(scenario)
    assert (len(rig.surveys), list(rig.estimates.places), rig.changed) == (1, [UID], ["team/x"])
    assert rig.place.estimated_start == at(3630)


def test_a_verdict_keeps_its_position_and_reserved_room() -> None:
    async def scenario(rig: Rig) -> None:
        rig.say(position=7)
        await rig.estimate()

    rig = play(scenario)
    assert (rig.place.position, rig.place.estimated_start) == (7, at(3630))


@pytest.mark.parametrize(("position", "comes"), [(100, True), (101, False)])
def test_only_the_first_hundred_jobs_get_an_estimate_between_cycles(position: int, comes: bool) -> None:
    async def scenario(rig: Rig) -> None:
        rig.say(position=position)
        await rig.estimate()

    assert (play(scenario).place.estimated_start is not None) is comes


@pytest.mark.parametrize("verdict", [LET_GO, msgspec.structs.replace(WAITS, queue=None), None])
def test_a_job_that_meanwhile_may_start_or_never_can_gets_no_estimate_in_its_verdict(
    verdict: Verdict | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        def decided() -> None:
            rig.state.decisions.withdraw_verdict(UID)
            if verdict is not None:
                rig.state.decisions.set_verdict(UID, verdict=verdict)

        during_an_estimate(monkeypatch, decided)
        await rig.estimate()

    rig = play(scenario)
    assert (rig.state.decisions.verdicts.get(UID), rig.changed) == (verdict, [])
    assert list(rig.estimates.places) == [UID]


def test_an_estimate_of_a_preemption_is_not_replaced() -> None:
    async def scenario(rig: Rig) -> None:
        rig.say(position=1, estimated_start=at(60), basis=BASIS_OF_PREEMPTION.message)
        await rig.estimate()

    rig = play(scenario)
    assert (rig.place.estimated_start, rig.changed) == (at(60), [])


def test_the_same_estimate_marks_no_job_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.estimate()
        await rig.estimate()

    rig = play(scenario)
    assert (len(rig.surveys), rig.changed) == (2, ["team/x"])


def test_estimates_that_began_under_other_limits_are_dropped_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        during_an_estimate(monkeypatch, rig.estimates.limits_changed)
        await rig.estimate()

    rig = play(scenario)
    assert (len(rig.surveys), list(rig.estimates.places), rig.changed) == (2, [UID], ["team/x"])


@pytest.mark.parametrize("rush", ["preemptions", "starts"])
def test_estimates_wait_while_many_jobs_end_for_another_one_or_many_workers_start_but_not_forever(rush: str) -> None:
    async def scenario(rig: Rig) -> None:
        notice = Notice(by="uid-boss", message="", grace_seconds=0)
        if rush == "preemptions":
            rig.state.decisions.set_notices({f"uid-{at}": notice for at in range(64)})
        else:
            rig.state.decisions.set_at_work(starting=64, ended=0, now=NOW)
        rig.estimates.request()
        await asyncio.sleep(59)
        assert rig.surveys == []
        await asyncio.sleep(2)
        assert len(rig.surveys) == 1
        rig.state.decisions.set_notices({f"uid-{at}": notice for at in range(63)})
        rig.state.decisions.set_at_work(starting=63, ended=0, now=NOW + timedelta(minutes=1))
        await rig.estimate()
        assert len(rig.surveys) == 2

    play(scenario)


def test_an_estimate_does_not_take_the_turn_of_a_newer_message() -> None:
    async def scenario(rig: Rig) -> None:
        rig.updates.update(WAITS, before=None, rank=0, key="team/x", at_once=True)
        rig.updates._pacing.hold_back(WAITS, before=None, rank=0, now=asyncio.get_running_loop().time())
        await asyncio.sleep(20)
        news = msgspec.structs.replace(WAITS, message="news", queue=QueuePlace(position=2))
        rig.updates.update(news, before=WAITS, rank=0, key="team/x")
        await asyncio.sleep(20)
        assert rig.state.decisions.verdicts[UID] == WAITS
        await rig.estimate()
        verdict = rig.state.decisions.verdicts[UID]
        assert isinstance(verdict, Waits)
        assert (verdict.message, rig.place.position, rig.place.estimated_start) == ("news", 2, at(3630))

    play(scenario)


def test_a_first_reason_waits_for_no_estimate_in_a_rush_and_for_one_again_after_it() -> None:
    async def scenario(rig: Rig) -> None:
        def first_reason() -> None:
            rig.changed.clear()
            rig.state.decisions.withdraw_verdict(UID)
            rig.updates.update(WAITS, before=None, rank=0, key="team/x")

        rig.state.decisions.set_at_work(starting=64, ended=0, now=NOW)
        first_reason()
        rig.estimates.request()
        await asyncio.sleep(0.1)
        assert rig.changed == ["team/x"], "it waits on, and no estimate comes"
        first_reason()
        assert rig.changed == ["team/x"]
        rig.state.decisions.set_at_work(starting=0, ended=0, now=NOW + timedelta(minutes=1))
        await asyncio.sleep(10)
        first_reason()
        assert rig.changed == []
        rig.estimates.request()
        await asyncio.sleep(0.1)
        assert rig.changed == ["team/x"]
        assert rig.place.estimated_start == at(3630)

    play(scenario)


def test_a_first_reason_waits_for_no_estimate_after_estimates_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_operator.queue.start_estimates.seconds_until_next", lambda _: 20.0)

    async def scenario(rig: Rig) -> None:
        rig.estimates.request()
        for seconds, changed in ((5.0, ["team/x"]), (14.5, [])):
            await asyncio.sleep(seconds)
            rig.changed.clear()
            rig.state.decisions.withdraw_verdict(UID)
            rig.updates.update(WAITS, before=None, rank=0, key="team/x")
            assert rig.changed == changed

    play(scenario)


def during_an_estimate(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """What happens once, while starts are estimated."""
    left = [happens]

    def estimated(state: State, cycle: Cycle) -> Iterator[tuple[str, QueuePlace] | None]:
        for found in estimates(state, cycle=cycle):
            if left:
                left.pop()()
            yield found

    monkeypatch.setattr("dovetail_operator.queue.start_estimates.estimates", estimated)


def test_after_other_limits_an_estimate_that_no_longer_holds_is_withdrawn_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.estimate()
        gone = make_job("x", status={"number": 2}, gpu=8, meta={"resourceVersion": "11", "generation": 2})
        rig.state.store.job_changed(gone)
        await rig.estimate()
        assert rig.place.estimated_start == at(3630), "only the next cycle says otherwise"
        rig.estimates.limits_changed()
        await rig.estimate()

    rig = play(scenario)
    assert (rig.place.estimated_start, rig.place.position, rig.estimates.places) == (None, 1, {})
    assert rig.changed == ["team/x", "team/x"]


def test_after_other_limits_an_estimate_that_still_holds_stays_without_a_write() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.estimate()
        rig.estimates.limits_changed()
        await rig.estimate()

    rig = play(scenario)
    assert (rig.place.estimated_start, rig.changed) == (at(3630), ["team/x"])


def test_after_other_limits_a_job_that_may_start_or_never_can_is_left_as_it_is() -> None:
    async def scenario(rig: Rig) -> None:
        for name, verdict in (("starts", LET_GO), ("never", msgspec.structs.replace(WAITS, queue=None))):
            rig.state.store.job_changed(make_job(name, status={"number": 3}, gpu=8))
            rig.state.decisions.set_verdict(f"uid-{name}", verdict=verdict)
        rig.estimates.limits_changed()
        with capture_logs() as logs:
            await rig.estimate()
        assert logs == []

    assert play(scenario).changed == ["team/x"]


def test_estimates_of_jobs_that_wait_no_more_are_dropped() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.estimate()
        rig.estimates.keep({UID})
        assert list(rig.estimates.places) == [UID]
        rig.estimates.keep(())
        assert rig.estimates.places == {}

    play(scenario)


def test_without_a_waiting_job_nothing_is_estimated_and_no_cycle_is_asked_for() -> None:
    async def scenario(rig: Rig) -> None:
        rig.state.store.job_deleted("team/x", uid=UID)
        await rig.estimate()

    rig = play(scenario)
    assert (rig.estimates.places, rig.wake_up._timer) == ({}, None)


def test_an_estimate_that_fails_is_made_again_after_a_pause_of_a_second() -> None:
    async def scenario(rig: Rig) -> None:
        def fails() -> None:
            if len(rig.surveys) < 3:
                raise RuntimeError

        rig.on_survey = fails
        await rig.estimate()
        await asyncio.sleep(1000)

    with capture_logs() as logs:
        rig = play(scenario)
    assert [each["event"] for each in logs] == ["starts are foreseen again"] * 2
    first, second, third = rig.surveys
    assert second - first >= 1
    assert third - second >= 1
    assert list(rig.estimates.places) == [UID]


def test_first_reasons_are_written_once_estimates_are_made_with_them_or_without() -> None:
    async def scenario(rig: Rig) -> None:
        large = make_job("large", status={"number": 3}, gpu=8)
        rig.state.store.job_changed(large)
        rig.state.decisions.withdraw_verdict(UID)
        for name in ("x", "large"):
            verdict = msgspec.structs.replace(WAITS, key=f"uid-{name}")
            rig.updates.update(verdict, before=None, rank=0, key=f"team/{name}")
        assert rig.changed == []
        rig.estimates.request()
        await asyncio.sleep(0.5)
        assert sorted(rig.changed) == ["team/large", "team/x"]

    rig = play(scenario)
    assert len(rig.changed) == 2
    assert rig.place.estimated_start == at(3630)
