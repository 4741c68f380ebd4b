"""Times as the API writes them."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.formats.timestamps import after, seconds_between, timestamp

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def ago(*, minutes: int) -> str:
    return timestamp(NOW - timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (90.0, "2026-03-01T12:01:30Z"),
        (120 * 2147483647.0, "9999-12-31T00:00:00Z"),
        (float("inf"), "9999-12-31T00:00:00Z"),
    ],
)
def test_a_time_that_no_calendar_has_is_the_last_one_there_is(seconds: float, told: str) -> None:
    assert timestamp(after(NOW, seconds=seconds)) == told


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        (None, None, None),
        (ago(minutes=5), None, 300),
        (ago(minutes=5), ago(minutes=3), 120),
        (ago(minutes=-1), None, 0),
    ],
)
def test_seconds_count_from_the_start_to_the_end_or_now(
    start: str | None, end: str | None, seconds: float | None
) -> None:
    assert seconds_between(start, end=end, now=NOW) == seconds
