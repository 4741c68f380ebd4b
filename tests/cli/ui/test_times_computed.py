"""Times read back, and computed a second time in exact fractions."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dovetail.formats.timestamps import moment
from dovetail_cli.ui import times

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
UNITS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
BEGIN_UNITS = {"": 1, "s": 1, "second": 1, "m": 60, "minutes": 60, "h": 3600, "hours": 3600, "d": 86400, "w": 604800}


@given(seconds=st.integers(1, 400 * 86400))
def test_a_run_time_that_is_shown_is_a_time_limit_of_as_many_seconds(seconds: int) -> None:
    shown = times.elapsed(seconds)
    assert times.limit_seconds(shown) == seconds
    days, _, clock = shown.rpartition("-")
    assert len(clock) == 8
    assert int(days or 0) == seconds // 86400


@given(minutes=st.integers(1, 100_000), seconds=st.integers(0, 59))
def test_minutes_are_as_long_alone_as_with_seconds(minutes: int, seconds: int) -> None:
    assert times.limit_seconds(f"{minutes}:{seconds:02d}") == times.limit_seconds(str(minutes)) + seconds
    hours, rest = divmod(minutes, 60)
    assert times.limit_seconds(f"{hours}:{rest:02d}:{seconds:02d}") == minutes * 60 + seconds


@given(whole=st.integers(0, 10_000), thousandths=st.integers(0, 999), unit=st.sampled_from([*UNITS]))
def test_a_span_is_its_number_of_units(whole: int, thousandths: int, unit: str) -> None:
    number = f"{whole}.{thousandths:03d}"
    found = times.span_seconds(f"{number}{unit}", option="--for")
    assert abs(Fraction(found) - Fraction(number) * UNITS[unit]) < Fraction(1, 10**6)


@given(amount=st.integers(0, 5000), later=st.integers(0, 86400), unit=st.sampled_from([*BEGIN_UNITS]))
def test_a_time_from_now_is_as_long_after_now_and_goes_with_it(amount: int, later: int, unit: str) -> None:
    found = times.begin_time(f"now+{amount}{unit}", now=NOW)
    assert moment(found) - NOW == timedelta(seconds=amount * BEGIN_UNITS[unit])
    moved = times.begin_time(f"now+{amount}{unit}", now=NOW + timedelta(seconds=later))
    assert moment(moved) - moment(found) == timedelta(seconds=later)


@given(amount=st.integers(0, 2000), unit=st.sampled_from(["s", "m", "h", "d"]))
def test_a_span_before_now_is_as_long_before_it(amount: int, unit: str) -> None:
    found = times.since_time(f"{amount}{unit}", now=NOW, option="--since")
    assert NOW - moment(found) == timedelta(seconds=float(amount * UNITS[unit]))


@given(hour=st.integers(0, 23), minute=st.integers(0, 59), zone=st.integers(-12, 14))
def test_an_hour_is_within_a_day_after_now_to_begin_and_before_now_to_look_back(
    hour: int, minute: int, zone: int
) -> None:
    from datetime import timezone

    now = NOW.astimezone(timezone(timedelta(hours=zone)))
    text = f"{hour:02d}:{minute:02d}"
    begins, since = times.begin_time(text, now=now), times.since_time(text, now=now, option="--since")
    assert timedelta(0) < moment(begins) - now <= timedelta(days=1)
    assert timedelta(0) <= now - moment(since) < timedelta(days=1)
    for found in (begins, since):
        at = moment(found).astimezone(now.tzinfo)
        assert (at.hour, at.minute, at.second) == (hour, minute, 0)
