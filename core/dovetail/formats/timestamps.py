"""Times as the API writes them. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

_LAST: Final = datetime(9999, 12, 31, tzinfo=UTC)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """The time of an RFC 3339 text."""
    return datetime.fromisoformat(text)


def after(start: datetime, *, seconds: float) -> datetime:
    """The time `seconds` later; the last time of the calendar where it would be beyond that."""
    return start + timedelta(seconds=seconds) if seconds < (_LAST - start).total_seconds() else _LAST


def seconds_between(start: str | None, *, end: str | None, now: datetime) -> float | None:
    """The seconds from `start` to `end`, or to `now` without an end; None without a start, and never negative."""
    if not start:
        return None
    return max(0.0, ((moment(end) if end else now) - moment(start)).total_seconds())
