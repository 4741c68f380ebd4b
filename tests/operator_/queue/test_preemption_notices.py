"""Preemption notices from cycle to cycle: who is marked, and when the next check comes."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.queue.preemption.policy import Rules
from dovetail.queue.verdicts import Verdict
from dovetail_operator.queue import preemption_notices
from dovetail_operator.queue.cycle import Cycle, decide, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.preemption_notices import PreemptionNotices
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, make_job
from tests.operator_.queue.test_preemption_candidates import with_boss


class Rig:
    """The notices of a state in which `low` runs on the devices that `boss` wants."""

    def __init__(self) -> None:
        self.state: State = with_boss()
        self.state.store.job_changed(make_job("other", status={"number": 3}, suspend=True))
        self.changed: list[str] = []
        self.wake_up = WakeUp()
        self.caches = caches_for(self.state)
        self.notices = PreemptionNotices(
            self.state,
            caches=self.caches,
            changed=self.changed.append,
            wake_up=self.wake_up,
            now=lambda: self.clock,
        )
        self.clock = NOW

    def cycle(self) -> list[Verdict]:
        cycle: Cycle = survey(self.state, now=NOW)
        found = list(decide(self.state, cycle=cycle))
        self.notices.update(cycle)
        return found


async def test_a_preempted_job_is_marked_when_its_notice_comes_and_when_it_goes() -> None:
    rig = Rig()
    for _ in range(2):
        rig.cycle()
    assert (rig.changed, list(rig.state.decisions.notices)) == (["team/low"], ["uid-low"])
    rig.state.store.job_deleted("team/boss", uid="uid-boss")
    rig.cycle()
    assert (rig.changed, rig.state.decisions.notices) == (["team/low", "team/low"], {})
    rig.cycle()
    assert len(rig.changed) == 2


async def test_preemption_is_checked_again_by_time_only_while_a_job_waits_and_it_is_switched_on() -> None:
    rig = Rig()
    rig.state.preemption = Rules()
    rig.cycle()
    assert rig.wake_up._timer is None
    idle = Rig()
    idle.state.store.job_deleted("team/boss", uid="uid-boss")
    idle.cycle()
    assert idle.wake_up._timer is None
    waiting = Rig()
    waiting.cycle()
    assert waiting.wake_up._timer is not None


async def test_another_cycle_comes_for_owners_that_have_not_searched_yet() -> None:
    rig = Rig()
    rig.state.preemption = Rules()
    rig.caches.negative_cache.turns.end_cycle(missed=True, skipped=False)
    rig.cycle()
    assert rig.wake_up._timer is not None


async def test_a_notice_holds_as_long_as_the_same_job_would_start() -> None:
    rig = Rig()
    rig.cycle()
    seen = rig.state.observe("team/low", now=NOW)
    assert seen is not None
    assert rig.notices.still_hold(seen)
    rig.state.store.job_deleted("team/boss", uid="uid-boss")
    assert not rig.notices.still_hold(seen)
    later = make_job("chief", gpu=2, priority=60, status={"number": 9})
    rig.state.store.job_changed(later)
    assert not rig.notices.still_hold(seen), "another job would start"


async def test_a_notice_does_not_hold_for_another_job_of_the_same_name() -> None:
    rig = Rig()
    rig.cycle()
    seen = rig.state.observe("team/low", now=NOW)
    assert seen is not None
    rig.state.store.job_deleted("team/boss", uid="uid-boss")
    rig.state.store.job_changed(make_job("boss", gpu=2, priority=60, meta={"uid": "uid-again"}, status={"number": 9}))
    assert not rig.notices.still_hold(seen)


async def test_the_proof_of_a_cycle_counts_for_all_who_end_for_a_gang_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proofs = 0

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal proofs
        proofs += 1
        return decide(*args, **more)

    monkeypatch.setattr(preemption_notices, "decide", counted)
    rig = Rig()
    rig.cycle()
    seen = rig.state.observe("team/low", now=NOW)
    assert seen is not None
    assert rig.notices.still_hold(seen)
    assert proofs == 0, "the cycle has just proven it"
    rig.clock += timedelta(seconds=6)
    assert [rig.notices.still_hold(seen) for _ in range(3)] == [True] * 3
    assert proofs == 1, "an old proof is repeated, once for all"
    rig.state.store.job_deleted("team/boss", uid="uid-boss")
    assert not rig.notices.still_hold(seen)
    assert proofs == 2, "the proof ends with the job that waited"


async def test_a_proof_asks_nothing_about_the_jobs_behind_the_one_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(*args: Any, **more: Any) -> Any:
        for verdict in decide(*args, **more):
            asked.append(verdict.key)
            yield verdict

    monkeypatch.setattr(preemption_notices, "decide", noted)
    rig = Rig()
    rig.state.store.job_changed(make_job("behind", gpu=2, status={"number": 9}))
    rig.cycle()
    rig.clock += timedelta(seconds=6)
    seen = rig.state.observe("team/low", now=NOW)
    assert seen is not None
    assert rig.notices.still_hold(seen)
    assert asked == ["uid-boss"]


async def test_a_job_without_a_notice_is_not_about_to_end() -> None:
    rig = Rig()
    seen = rig.state.observe("team/low", now=NOW)
    assert seen is not None
    assert not rig.notices.still_hold(seen)


async def test_a_job_that_has_gone_since_the_cycle_began_gets_no_notice() -> None:
    rig = Rig()
    cycle = survey(rig.state, now=NOW)
    list(decide(rig.state, cycle=cycle))
    assert list(cycle.orders) == ["uid-low"]
    rig.state.store.job_deleted("team/low", uid="uid-low")
    rig.notices.update(cycle)
    assert (rig.state.decisions.notices, rig.changed) == ({}, [])
