"""Forecasts of what a quota's jobs request, by hour of the week, and the windows that follow from them. Pure.

The profile has the most GPUs that were in use or requested in each hour of the week, by the clock of the quota's time
zone. Each week moves it halfway towards what was seen (simple exponential smoothing with a season of a week). An hour
of the week that was not seen yet is forecast by the same hour of the latest day that was.

The state is the quota's status: it survives a restart, and has 168 numbers whatever happens.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.gpuquota import Forecast, GuaranteeWindow, QuotaForecast
from dovetail.formats.timestamps import moment, timestamp
from dovetail.queue.quota_tree.guarantee_windows import DAYS, zone_named

HOURS: Final = 168
_DAY: Final = 24
_NOT_SEEN: Final = -1.0
# The weight of the latest week in the profile.
_SMOOTHING: Final = 0.5
# The weight of the latest hour in the error, so that it is about that of a week.
_ERROR_SMOOTHING: Final = 1 / HOURS
_HOUR: Final = timedelta(hours=1)


def observed(
    before: QuotaForecast | None, *, said: Forecast, demand_gpus: float, now: datetime
) -> QuotaForecast | None:
    """The forecast after a look at `now`, at which the quota's jobs use and wait for so many GPUs.

    None if the time zone does not exist. An hour counts once it is over. The first one, which is seen in part, does
    not count, and neither does one in which nothing was seen.
    """
    zone = zone_named(said.time_zone)
    if zone is None:
        return None
    begin = now.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    hour = timestamp(begin)
    if before is None or before.time_zone != said.time_zone or len(before.profile) != HOURS:
        fresh = QuotaForecast(
            time_zone=said.time_zone, since=hour, hour=hour, peak=demand_gpus, profile=[_NOT_SEEN] * HOURS
        )
        return _with_windows(fresh, said=said, begin=begin)
    if before.hour == hour:
        peak = max(before.peak, demand_gpus)
        return _with_windows(msgspec.structs.replace(before, peak=peak), said=said, begin=begin)
    closed = before if before.hour == before.since else _closed(before, at=moment(before.hour).astimezone(zone))
    return _with_windows(msgspec.structs.replace(closed, hour=hour, peak=demand_gpus), said=said, begin=begin)


def _closed(before: QuotaForecast, *, at: datetime) -> QuotaForecast:
    """The forecast once the hour that began `at` is over."""
    slot, actual = slot_of(at), before.peak
    known, expected = before.profile[slot], expected_gpus(before.profile, slot=slot)
    profile = list(before.profile)
    profile[slot] = round(actual if known < 0 else known + _SMOOTHING * (actual - known), 3)
    if expected is None:
        return msgspec.structs.replace(before, profile=profile)
    # The mean of the first week, and then one that forgets.
    weight = max(1 / (before.hours + 1), _ERROR_SMOOTHING)
    error = before.error + weight * (abs(actual - expected) - before.error)
    return msgspec.structs.replace(before, profile=profile, error=round(error, 3), hours=before.hours + 1)


def slot_of(local: datetime) -> int:
    """The hour of the week, from Monday's first on."""
    return local.weekday() * _DAY + local.hour


def expected_gpus(profile: Sequence[float], *, slot: int) -> float | None:
    """The forecast of an hour of the week in GPUs; None if no such hour of a day was seen."""
    same_hour = (profile[(slot - back * _DAY) % HOURS] for back in range(HOURS // _DAY))
    return next((gpus for gpus in same_hour if gpus >= 0), None)


def _with_windows(forecast: QuotaForecast, *, said: Forecast, begin: datetime) -> QuotaForecast:
    """The forecast with its windows of the next day; equal hours of a day share one."""
    hours = [
        (slot, _guaranteed(forecast.profile, slot=slot, said=said))
        for slot in ((slot_of(begin) + ahead) % HOURS for ahead in range(_DAY))
    ]
    return msgspec.structs.replace(
        forecast,
        expected=expected_gpus(forecast.profile, slot=slot_of(begin)),
        windows=list(_windows(hours, time_zone=said.time_zone)),
    )


def _guaranteed(profile: Sequence[float], *, slot: int, said: Forecast) -> int:
    """The whole GPUs that are guaranteed in an hour of the week."""
    expected = expected_gpus(profile, slot=slot) or 0.0
    return min(said.gpus, math.ceil(round(expected * (100 + said.margin_percent) / 100, 6)))


def _windows(hours: Sequence[tuple[int, int]], *, time_zone: str) -> Iterator[GuaranteeWindow]:
    at = 0
    while at < len(hours):
        slot, gpus = hours[at]
        last = at + 1
        while last < len(hours) and hours[last][1] == gpus and hours[last][0] // _DAY == slot // _DAY:
            last += 1
        if gpus:
            yield GuaranteeWindow(
                name=f"forecast-{slot}",
                days=[DAYS[slot // _DAY]],
                start=f"{slot % _DAY:02}:00",
                end=f"{(slot + last - at) % _DAY:02}:00",
                time_zone=time_zone,
                gpus=gpus,
            )
        at = last
