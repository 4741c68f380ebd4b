import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from dovetail_cli.ui import times
from dovetail_cli.ui.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:30:00", 5400),
        ("30:00", 1800),
        ("10", 600),
        ("1-00:00:00", 86400),
        ("00:01", 1),
        ("100:00:00", 360000),
        ("90:59", 5459),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("90m", 5400),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1d", 86400),
    ],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(text: str, seconds: int) -> None:
    assert times.limit_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "00:00",
        "ten",
        "1:2:3:4",
        "-5",
        "1.5",
        "٣",
        "99:99",
        "1:60:00",
        "1-24:00:00",
        "1:00:60",
        "00:60",
        "1-24",
        "0.5s",
        "5ms",
        "2w",
        f"{'9' * 400}d",
        "٢h",
    ],
)
def test_another_time_limit_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError, match="HH:MM:SS, MM:SS, D-HH, a span such as 90m or 2h, or whole minutes"):
        times.limit_seconds(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("2m", 120), ("500ms", 0.5), ("1h", 3600), ("1.5", 1.5), ("1d", 86400)]
)
def test_a_span_has_a_unit_or_is_seconds(text: str, seconds: float) -> None:
    assert times.span_seconds(text, option="--min-run") == seconds


def test_a_span_that_is_none_names_its_option() -> None:
    with pytest.raises(UsageError, match='--max-run "soon"'):
        times.span_seconds("soon", option="--max-run")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "00:00:00"), (0, "00:00:00"), (61.9, "00:01:01"), (86399, "23:59:59"), (90061, "1-01:01:01")],
)
def test_run_time_is_shown_as_slurm_shows_it(seconds: float | None, text: str) -> None:
    assert times.elapsed(seconds) == text


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("now+10m", "2026-11-21T11:10:00Z"),
        ("now+90", "2026-11-21T11:01:30Z"),
        ("now+2hours", "2026-11-21T13:00:00Z"),
        ("13:30", "2026-11-21T12:30:00Z"),
        ("12:00", "2026-11-22T11:00:00Z"),
        ("2026-12-01", "2026-11-30T23:00:00Z"),
        ("2026-12-01T18:00", "2026-12-01T17:00:00Z"),
        ("2026-12-01T18:00:00Z", "2026-12-01T18:00:00Z"),
    ],
)
def test_a_time_to_begin_is_read_as_slurm_does(text: str, begins: str) -> None:
    noon = datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=1)))
    assert times.begin_time(text, now=noon) == begins


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("2036-07-01T18:00", "2036-07-01T22:00:00Z"),
        ("2036-12-01T18:00", "2036-12-01T23:00:00Z"),
        ("2036-07-01T18:00Z", "2036-07-01T18:00:00Z"),
    ],
)
def test_a_date_is_read_by_the_summer_or_winter_time_of_that_day(text: str, begins: str) -> None:
    assert times.begin_time(text, now=times.local_now()) == begins


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize("at", ["2026-10-31T12:00:00", "2026-11-01T05:30:00", "2026-11-01T06:30:00"])
def test_a_span_is_as_long_as_it_says_also_when_the_clocks_change(at: str) -> None:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    now = moment.astimezone(times.local_now().tzinfo)
    assert times.begin_time("now+1day", now=now) == (moment + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert times.since_time("2h", now=now, option="--since") == (moment - timedelta(hours=2)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


@pytest.mark.usefixtures("new_york")
def test_the_local_clock_is_the_one_clock_and_dates_of_the_past_have_their_own_season() -> None:
    now = times.local_now()
    assert abs(times.utc_now() - now) < timedelta(minutes=1)
    assert times.since_time("2020-07-01", now=now, option="--since") == "2020-07-01T04:00:00Z"
    assert times.since_time("2020-12-01", now=now, option="--since") == "2020-12-01T05:00:00Z"


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "2026-13-01", "now+", "now-5m", "9999-12-31T23:59-12:00", "now+500000d"]
)
def test_what_is_no_time_to_begin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write HH:MM, a date such as 2026-01-31T18:00, or now"):
        times.begin_time(text, now=datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
