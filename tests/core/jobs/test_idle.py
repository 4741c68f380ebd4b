from datetime import UTC, datetime, timedelta

import pytest

from dovetail.jobs.idle import IdleAction, IdleRules, IdleTimes

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def minutes(count: float) -> datetime:
    return BEGIN + timedelta(minutes=count)


def times(action: IdleAction = "Suspend") -> IdleTimes:
    return IdleTimes(IdleRules(after_seconds=600, grace_seconds=300, action=action))


def test_a_job_is_idle_when_its_devices_have_done_nothing_for_that_long() -> None:
    idle = times()
    assert idle.update("a", utilization=0.0, now=BEGIN) is None
    assert idle.update("a", utilization=0.04, now=minutes(9)) is None
    assert idle.update("a", utilization=0.0, now=minutes(10)) == BEGIN


def test_work_in_between_begins_the_time_anew() -> None:
    idle = times()
    idle.update("a", utilization=0.0, now=BEGIN)
    idle.update("a", utilization=0.05, now=minutes(9))
    assert idle.update("a", utilization=0.0, now=minutes(10)) is None
    assert idle.update("a", utilization=0.0, now=minutes(20)) == minutes(10)


def test_what_nobody_measures_makes_no_job_idle_and_ends_none() -> None:
    idle = times()
    assert idle.update("a", utilization=None, now=BEGIN) is None
    assert idle.update("a", utilization=None, now=minutes(60)) is None
    assert not idle.is_due(BEGIN, utilization=None, now=minutes(60))


def test_after_a_restart_the_time_goes_on_from_what_the_job_was_told() -> None:
    since = times().update("a", utilization=0.0, now=minutes(12), told_at=minutes(10))
    assert since == BEGIN


@pytest.mark.parametrize(("action", "due"), [("Warn", False), ("Suspend", True), ("End", True)])
def test_what_follows_the_warning_comes_after_the_grace(action: IdleAction, due: bool) -> None:
    idle = times(action)
    assert not idle.is_due(BEGIN, utilization=0.0, now=minutes(14.9))
    assert idle.is_due(BEGIN, utilization=0.0, now=minutes(15)) is due


def test_a_job_that_has_ended_is_forgotten() -> None:
    idle = times()
    idle.update("a", utilization=0.0, now=BEGIN)
    idle.forget_all_but(set())
    assert idle.update("a", utilization=0.0, now=minutes(10)) is None
