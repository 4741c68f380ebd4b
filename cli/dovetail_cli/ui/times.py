"""Times as people and Slurm write them. Pure: the clock is an argument."""

import math
import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

from dovetail.formats.quantities import read_whole
from dovetail.formats.timestamps import after
from dovetail_cli.ui.errors import UsageError

_CLOCK: Final = re.compile(r"(?:(?:(\d{1,9})-)?(\d{1,9}):)?(\d{1,9}):(\d{2})", re.ASCII)
# Slurm's days with hours, or with hours and minutes.
_DAYS: Final = re.compile(r"(\d{1,9})-(\d{1,2})(:\d{2})?", re.ASCII)
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", re.ASCII)
_FROM_NOW: Final = re.compile(r"now\+(\d{1,8})(s|seconds?|m|minutes?|h|hours?|d|days?|w|weeks?)?")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_HOUR: Final = re.compile(r"\d{2}:\d{2}(:\d{2})?")
# The earliest time and the last year that these functions accept.
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 2999
_SPAN_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def limit_seconds(text: str) -> int:
    """A time limit as `sbatch -t` takes it, or a span such as `90m` or `2h`.

    Slurm has `HH:MM:SS`, `MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS` and whole minutes. Raises `UsageError`.
    """
    short, span = _DAYS.fullmatch(text), _SPAN.fullmatch(text)
    found = _CLOCK.fullmatch(f"{short[1]}-{short[2]}{short[3] or ':00'}:00" if short else text)
    if found:
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        # A part that has a larger one before it is below that one's unit; the first may be any number, as in 90:00.
        carried = seconds > 59 or (bool(found[2]) and minutes > 59) or (bool(found[1]) and hours > 23)
        total = 0 if carried else ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif span and span[2] not in {"", "ms"}:
        # A number of hundreds of digits is infinite.
        length = float(span[1]) * _SPAN_SECONDS[span[2]]
        total = int(length) if math.isfinite(length) else 0
    else:
        total = read_whole(text, otherwise=0) * 60
    if total < 1:
        raise UsageError(
            f'--time "{text}": write HH:MM:SS, MM:SS, D-HH, a span such as 90m or 2h, or whole minutes, '
            "at least one second"
        )
    return total


def span_seconds(text: str, *, option: str) -> float:
    """A span such as `5s`, `2m` or `500ms`; a bare number is seconds."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise UsageError(f'{option} "{text}": write a number with ms, s, m, h or d, such as 5s')
    return float(found[1]) * _SPAN_SECONDS[found[2]]


def since_time(text: str, *, now: datetime, option: str) -> str:
    """A time in the past as RFC 3339.

    A span before now such as `1d`, `12h` or `90m`, a date, or a time of today.
    """
    span = _SPAN.fullmatch(text.strip())
    if span and span[2]:
        ago = float(span[1]) * _SPAN_SECONDS[span[2]]
        # Spans are of UTC: between two times of one zone Python counts no change to summer time.
        since: datetime | None = now.astimezone(UTC) - timedelta(seconds=min(ago, (now - _FIRST).total_seconds()))
    else:
        since = _in_the_past(text.strip(), now=now)
    if since is None or since > now:
        raise UsageError(f'{option} "{text}": write a span such as 1d, 12h or 90m, or a time that has passed')
    return max(since, _FIRST).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _in_the_past(text: str, *, now: datetime) -> datetime | None:
    found = _of_the_clock(text, now=now)
    return found - timedelta(days=1) if found and _HOUR.fullmatch(text) and found > now else found


def begin_time(text: str, *, now: datetime, option: str = "--begin") -> str:
    """When a job may start, as in `sbatch --begin`, as RFC 3339.

    `HH:MM`, a date with or without it, or `now+10m`.

    Times of the day are those of the time zone of `now`; one that has passed today is tomorrow's.
    """
    span = _FROM_NOW.fullmatch(text.strip())
    if span:
        seconds = int(span[1]) * _UNIT_SECONDS[(span[2] or "s")[0]]
        begin: datetime | None = after(now.astimezone(UTC), seconds=seconds)
    else:
        begin = _of_the_clock(text.strip(), now=now)
    if begin is None or begin < _FIRST or begin.year > _LAST_YEAR:
        raise UsageError(f'{option} "{text}": write HH:MM, a date such as 2026-01-31T18:00, or now+10m')
    return begin.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_the_clock(text: str, *, now: datetime) -> datetime | None:
    try:
        if _HOUR.fullmatch(text):
            begin = datetime.combine(now.date(), time.fromisoformat(text), tzinfo=now.tzinfo)
            return begin if begin > now else begin + timedelta(days=1)
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=now.tzinfo)


def elapsed(seconds: float | None) -> str:
    """`[D-]HH:MM:SS` as Slurm's TIME; a job that has not started has run for `00:00:00`."""
    whole = int(seconds or 0)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def utc_now() -> datetime:
    """The clock, where a command hands it on."""
    return datetime.now(UTC)


class _Here(tzinfo):
    """The time zone of this machine, with daylight saving time.

    `astimezone()` alone gives the present offset for all dates.
    """

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, when: datetime | None) -> None:
        """Part of the offset."""

    def tzname(self, when: datetime | None) -> str | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, when: datetime) -> datetime:
        local = when.replace(tzinfo=UTC).astimezone()
        here = local.replace(tzinfo=self)
        # In autumn an hour comes twice.
        return here if here.utcoffset() == local.utcoffset() else here.replace(fold=1)


def local_now() -> datetime:
    """The clock in this machine's time zone, for times as people write them."""
    return utc_now().astimezone(_Here())
