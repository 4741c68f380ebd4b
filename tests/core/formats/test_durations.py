import pytest

from dovetail.formats.durations import human, moment, timestamp


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
