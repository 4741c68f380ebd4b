"""The forecast of a quota's demand: a profile of the week, its error, and the windows that follow."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.gpuquota import Forecast, GPUQuota, QuotaForecast
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.quota_tree.demand_forecast import HOURS, expected_gpus, observed, slot_of
from dovetail.queue.quota_tree.guarantee_windows import in_force, without_zone
from tests.core.queue.quota_tree.builders import make_quota

# A Monday.
BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
SAID = Forecast(gpus=32, margin_percent=0)


def wave(at: datetime) -> float:
    """Demand of a day, less at weekends: 4 to 20 GPUs."""
    part = (1 + math.cos((at.hour - 14) / 24 * 2 * math.pi)) / 2
    return round(4 + 16 * part * (0.25 if at.weekday() >= 5 else 1.0))


def seen(
    hours: int, *, said: Forecast = SAID, demand: Callable[[datetime], float] = wave, begin: datetime = BEGIN
) -> QuotaForecast:
    """What is known after so many whole hours, with a look at the beginning and the end of each."""
    found: QuotaForecast | None = None
    for hour in range(hours + 1):
        for minute in (0, 59):
            now = begin + timedelta(hours=hour, minutes=minute)
            found = observed(found, said=said, demand_gpus=demand(now), now=now)
            if hour == hours:
                break
    assert found is not None
    return found


def with_forecast(found: QuotaForecast | None, *, said: dict[str, Any], **spec: Any) -> GPUQuota:
    quota = make_quota("chat", forecast=said, **spec)
    return quota if found is None else _with_status(quota, found=found)


def _with_status(quota: GPUQuota, *, found: QuotaForecast) -> GPUQuota:
    return replace(quota, status=replace(quota.status, forecast=found))


def guaranteed(quota: GPUQuota, *, at: datetime) -> int | None:
    said = in_force(quota, at=[at]).spec.guaranteed
    return None if said is None else said.gpus


def test_after_a_week_each_hour_of_the_week_is_forecast_as_it_was() -> None:
    found = seen(2 * HOURS)
    for ahead in range(HOURS):
        at = BEGIN + timedelta(hours=ahead)
        assert expected_gpus(found.profile, slot=slot_of(at)) == wave(at)


def test_the_first_hour_is_seen_in_part_and_does_not_count() -> None:
    assert [gpus for gpus in seen(1).profile if gpus >= 0] == []
    assert [gpus for gpus in seen(2).profile if gpus >= 0] == [wave(BEGIN + timedelta(hours=1))]


def test_before_the_first_week_is_over_an_hour_is_forecast_by_the_day_before() -> None:
    found = seen(30)
    at = BEGIN + timedelta(hours=30)
    assert found.expected == wave(at - timedelta(days=1))


def test_an_hour_that_no_day_had_is_not_forecast_and_guarantees_nothing() -> None:
    found = seen(3)
    assert (found.expected, found.windows[0].start) == (None, "01:00")


def test_a_repeating_week_is_forecast_without_error_and_another_level_with_its_difference() -> None:
    assert seen(3 * HOURS).error < 0.3
    constant = seen(24, demand=lambda _: 10.0)
    assert (constant.error, constant.hours) == (0, 0)
    later = seen(HOURS, demand=lambda at: 10.0 if at < BEGIN + timedelta(days=1, hours=1) else 16.0)
    assert later.hours == HOURS - 1 - 24
    assert 0 < later.error < 6


def test_a_new_level_is_half_learned_in_a_week() -> None:
    found = seen(2 * HOURS + 2, demand=lambda at: 8.0 if at < BEGIN + timedelta(hours=HOURS) else 16.0)
    assert found.profile[5] == 12.0


def test_the_peak_of_an_hour_counts_and_not_its_end() -> None:
    found = seen(3, demand=lambda at: 9.0 if at.minute == 0 else 2.0)
    assert found.profile[1] == 9.0


def test_hours_without_a_look_keep_what_was_known() -> None:
    before = seen(2 * HOURS)
    later = BEGIN + timedelta(hours=2 * HOURS + 10)
    after = observed(before, said=SAID, demand_gpus=0.0, now=later)
    assert after is not None
    assert [at for at in range(HOURS) if after.profile[at] != before.profile[at]] in ([], [0])


@pytest.mark.parametrize("hours", [0, 1, 30, 100, 400])
def test_the_state_is_bounded_and_windows_are_those_of_a_day(hours: int) -> None:
    found = seen(hours)
    assert len(found.profile) == HOURS
    assert len(found.windows) <= 24
    assert len({each.name for each in found.windows}) == len(found.windows)


def test_windows_guarantee_what_is_expected_with_the_margin_up_to_the_most() -> None:
    said = {"gpus": 18, "marginPercent": 10}
    found = seen(2 * HOURS, said=Forecast(gpus=18, margin_percent=10))
    quota = with_forecast(found, said=said, guaranteed=6)
    for ahead in range(24):
        at = BEGIN + timedelta(hours=2 * HOURS + ahead, minutes=30)
        assert guaranteed(quota, at=at) == max(6, min(18, math.ceil(round(wave(at) * 1.1, 6))))


def test_a_forecast_counts_by_the_clock_of_its_time_zone() -> None:
    berlin = Forecast(gpus=32, margin_percent=0, time_zone="Europe/Berlin")
    found = seen(2 * HOURS, said=berlin, demand=lambda at: 20.0 if at.hour == 6 else 4.0)
    quota = with_forecast(found, said={"gpus": 32, "timeZone": "Europe/Berlin"})
    assert found.profile[8] == 20.0, "06:00 in UTC is 08:00 in summer"
    peak = BEGIN + timedelta(hours=2 * HOURS + 6, minutes=30)
    assert (guaranteed(quota, at=peak), guaranteed(quota, at=peak + timedelta(hours=1))) == (20, 4)


def test_another_time_zone_begins_again() -> None:
    found = observed(seen(50), said=Forecast(gpus=32, time_zone="Asia/Tokyo"), demand_gpus=1.0, now=BEGIN)
    assert found is not None
    assert set(found.profile) == {-1.0}


def test_a_time_zone_that_does_not_exist_is_named_and_forecasts_nothing() -> None:
    said = Forecast(gpus=32, time_zone="Europe/Berln")
    assert observed(None, said=said, demand_gpus=1.0, now=BEGIN) is None
    quota = with_forecast(None, said={"gpus": 32, "timeZone": "Europe/Berln"})
    (found,) = without_zone(quota.spec)
    assert found.time_zone == "Europe/Berln"
    quotas = Quotas()
    quotas.update(quota)
    (finding,) = quotas.tree().findings
    assert finding.reason == "TimeZoneUnknown"
    assert "its forecast is in the time zone Europe/Berln, which does not exist" in finding.message


def test_without_the_field_a_forecast_that_is_left_in_the_status_counts_for_nothing() -> None:
    quota = _with_status(make_quota("chat", guaranteed=2), found=seen(2 * HOURS))
    assert guaranteed(quota, at=BEGIN + timedelta(hours=14)) == 2


def test_the_statuses_of_quotas_learn_what_their_jobs_use_and_wait_for() -> None:
    quotas = Quotas()
    quota = make_quota("chat", namespaces=["chat"], forecast={"gpus": 32})
    jobs = [
        Counted(uid="runs", subject=Subject(namespace="chat", user="u"), milli=3000, start=BEGIN),
        Counted(uid="waits", subject=Subject(namespace="chat", user="u"), milli=2000, queued=True),
        Counted(uid="others", subject=Subject(namespace="train", user="u"), milli=9000, start=BEGIN),
    ]
    for hour in range(3):
        quotas.update(quota)
        now = BEGIN + timedelta(hours=hour)
        status = quotas.compute_statuses(jobs, now=now)["chat"]
        assert status.forecast is not None
        quota = _with_status(quota, found=status.forecast)
    assert status.forecast.profile[1] == 5.0
    quotas.update(quota)
    quotas.observe(None, now=BEGIN + timedelta(days=1, hours=1))  # type: ignore[arg-type] - memory is not counted
    (node,) = quotas.tree().nodes
    assert node.guaranteed_milli == 6000, "5 GPUs and a margin of a tenth, in whole GPUs"
