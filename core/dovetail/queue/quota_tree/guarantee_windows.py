"""The guarantees of quotas by the calendar and by forecast: what holds at a time. Pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from dovetail.api.gpuquota import Forecast, GPUAmounts, GPUQuota, GPUQuotaSpec, GuaranteeWindow

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY: Final = timedelta(days=1)


@lru_cache(256)
def zone_named(name: str) -> ZoneInfo | None:
    """The time zone of this name; None if there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        # Not found is a KeyError, a folder of the database an OSError.
        return None


def without_zone(spec: GPUQuotaSpec) -> list[GuaranteeWindow | Forecast]:
    """The windows, and the forecast, whose time zone does not exist. They do not count."""
    said: list[GuaranteeWindow | Forecast] = [*spec.guarantee_windows]
    if spec.forecast is not None:
        said.append(spec.forecast)
    return [each for each in said if zone_named(each.time_zone) is None]


def in_force(quota: GPUQuota, *, at: Sequence[datetime]) -> GPUQuota:
    """The quota with the highest guarantee of these times; unchanged without windows."""
    spec, windows = quota.spec, guarantee_windows_of(quota)
    if not windows:
        return quota
    said = spec.guaranteed or GPUAmounts(gpus=0)
    of_windows = [each.gpus for each in windows if any(_holds(each, at=moment) for moment in at)]
    gpus = max(*of_windows, said.gpus or 0) if of_windows else said.gpus
    guaranteed = msgspec.structs.replace(said, gpus=gpus)
    return msgspec.structs.replace(quota, spec=msgspec.structs.replace(spec, guaranteed=guaranteed))


def guarantee_windows_of(quota: GPUQuota) -> Sequence[GuaranteeWindow]:
    """The windows that the quota has, and those that its forecast adds."""
    forecast = quota.status.forecast
    if quota.spec.forecast is None or forecast is None:
        return quota.spec.guarantee_windows
    return [*quota.spec.guarantee_windows, *forecast.windows]


def has_windows(spec: GPUQuotaSpec) -> bool:
    """Whether time alone changes what is guaranteed."""
    return bool(spec.guarantee_windows) or spec.forecast is not None


def _holds(window: GuaranteeWindow, *, at: datetime) -> bool:
    """Whether a window that begins today or yesterday, by its own clock, includes the time."""
    zone = zone_named(window.time_zone)
    if zone is None:
        return False
    today = at.astimezone(zone).date()
    return any(start <= at < end for day in (today - _DAY, today) for start, end in _period(window, day=day, zone=zone))


def _period(window: GuaranteeWindow, *, day: date, zone: ZoneInfo) -> Iterator[tuple[datetime, datetime]]:
    """The period of a window that begins on this day, in UTC; nothing on other days than its own."""
    if window.days and DAYS[day.weekday()] not in window.days:
        return
    begins, ends = time.fromisoformat(window.start), time.fromisoformat(window.end)
    last = day if begins < ends else day + _DAY
    # A time that a change of the clock skips comes as much later as the clock was put forward.
    start, end = datetime.combine(day, begins, tzinfo=zone), datetime.combine(last, ends, tzinfo=zone)
    yield start.astimezone(UTC), end.astimezone(UTC)
