"""What is printed of a duration, read back: how far it is from the duration at most. A longer one prints no less."""

import re
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dovetail.formats.durations import brief, human

MINUTE, HOUR, DAY = 60, 3600, 86400
UNITS = {"s": 1, " s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "y": 365 * DAY}
# As apimachinery's HumanDuration: below each limit, the seconds to which a text is exact.
EXACT = (
    (10 * MINUTE, 1), (8 * HOUR, MINUTE), (8 * DAY, HOUR), (8 * 365 * DAY, DAY),
)  # fmt: skip
YEAR = 365 * DAY
LIMITS = (2 * MINUTE, 10 * MINUTE, 3 * HOUR, 8 * HOUR, 2 * DAY, 8 * DAY, 2 * YEAR, 8 * YEAR)
# A text changes its units at a limit.
NEAR = [limit + off for limit in LIMITS for off in (-5 * HOUR, -HOUR - 1, -MINUTE - 1, -1, 0, 1, MINUTE + 1, HOUR + 1)]
durations = st.integers(0, 2 * HOUR) | st.sampled_from([each for each in NEAR if each >= 0]) | st.integers(0, 20 * YEAR)


def read(text: str) -> Fraction:
    """The seconds of a text such as 3m20s or 0.4 s."""
    parts = re.findall(r"(\d+(?:\.\d+)?)( ?[a-z])", text)
    assert "".join(number + unit for number, unit in parts) == text
    return sum((Fraction(number) * UNITS[unit] for number, unit in parts), start=Fraction(0))


@given(seconds=durations, more=st.integers(1, 3 * DAY), part=st.floats(0, 0.999))
def test_a_duration_as_kubectl_prints_it_is_cut_to_its_unit_and_never_shrinks(
    seconds: int, more: int, part: float
) -> None:
    for each in (seconds, *NEAR):
        unit = next((exact for limit, exact in EXACT if each < limit), YEAR)
        assert 0 <= max(0, each) - read(human(each)) < unit
    assert human(seconds + part) == human(seconds)
    assert read(human(seconds + more)) >= read(human(seconds))


@given(tenths=st.integers(0, 2 * DAY * 10), more=st.integers(0, DAY * 10))
def test_a_span_of_a_summary_is_rounded_to_what_it_shows_and_never_shrinks(tenths: int, more: int) -> None:
    seconds = Fraction(tenths, 10)
    unit = Fraction(1, 10) if seconds < 10 else 1
    said = read(brief(float(seconds)))
    if said < HOUR:
        assert abs(seconds - said) <= Fraction(unit) / 2
    else:
        # From an hour on the seconds are cut.
        assert -Fraction(1, 2) <= seconds - said < MINUTE
    assert read(brief(float(seconds + Fraction(more, 10)))) >= said
