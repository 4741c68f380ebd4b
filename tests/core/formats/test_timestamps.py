"""Times as the API writes them."""

from datetime import UTC, datetime

import pytest

from dovetail.formats.timestamps import after, timestamp

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


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
