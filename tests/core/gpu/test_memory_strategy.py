"""Memory strategies as texts: names, fractions, and what is neither."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.gpu.memory_strategy import FRACTIONS, GUARD_PATTERN, PATTERN, fraction_of, text_of
from dovetail.gpu.request import RequestError


@pytest.mark.parametrize(
    ("text", "fraction"),
    [
        ("Conservative", 0.8), ("Aggressive", 0.95), ("Dynamic", 0.8), ("0.05", 0.05), ("0.7", 0.7), ("0.735", 0.735),
        ("1", 1.0), ("1.0", 1.0), ("0.80", 0.8),
    ],
)  # fmt: skip
def test_a_name_or_a_fraction_is_a_part_of_the_memory(text: str, fraction: float) -> None:
    assert re.search(PATTERN, text)
    assert fraction_of(text) == fraction


@pytest.mark.parametrize(
    "text",
    ["", "conservative", "0", "0.049", "0.04", "1.1", "2", "-0.5", "70%", "0.7 ", "0.7\n", "nan", "0.1234", "٠.٧"],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(RequestError, match=r"allowed are Conservative, Aggressive, Dynamic or a fraction from 0\.05"):
        fraction_of(text)


@given(st.integers(50, 1000))
def test_what_is_printed_is_read_as_the_same_fraction(milli: int) -> None:
    fraction = milli / 1000
    text = text_of(fraction)
    assert re.search(GUARD_PATTERN, text)
    assert fraction_of(text) == fraction


@pytest.mark.parametrize("name", FRACTIONS)
def test_a_fraction_with_a_name_is_printed_by_it(name: str) -> None:
    assert text_of(FRACTIONS[name]) == name
