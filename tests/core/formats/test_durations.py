import pytest

from dovetail.formats.durations import brief, human, moment, timestamp


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 600, "5h10m"),
        (9 * 3600 + 600, "9h"),
        (51 * 3600, "2d3h"),
        (8 * 86400, "8d"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_read_as_kubectl_prints_them(seconds: float, text: str) -> None:
    assert human(seconds) == text


def test_a_time_survives_writing_and_reading() -> None:
    assert timestamp(moment("2026-11-21T13:00:05Z")) == "2026-11-21T13:00:05Z"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (12.3, "12 s"), (200, "3m20s"), (3900, "1h05m"), (119.9, "2m00s")]
)
def test_a_span_in_a_summary_is_brief(seconds: float, text: str) -> None:
    assert brief(seconds) == text
