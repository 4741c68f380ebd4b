from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.formats.quantities import Quantity, QuantityError, mebibytes, milli, whole

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60), "e3": Fraction(1000), "E-2": Fraction(1, 100),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100m", 100), ("2", 2000), ("0.5", 500), ("1.5k", 1_500_000), (".5", 500), ("2.", 2000), ("1u", 1), ("-1", -1000),
     (4, 4000), (0.1, 100), ("+3", 3000)],
)  # fmt: skip
def test_milli_are_thousandths(text: Quantity, expected: int) -> None:
    assert milli(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1Ki", 1024), ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("2k", 2000), ("1500m", 2), ("1.5Gi", 3 << 29),
     ("0", 0), ("12e-1", 2)],
)  # fmt: skip
def test_whole_units_are_exact_and_parts_round_up(text: str, expected: int) -> None:
    assert whole(text) == expected


@pytest.mark.parametrize(
    ("text", "up", "down"), [("1.5Gi", 1536, 1536), ("1G", 954, 953), ("16393244Ki", 16010, 16009), ("1", 1, 0)]
)
def test_mebibytes_round_as_asked(text: str, up: int, down: int) -> None:
    assert (mebibytes(text), mebibytes(text, rounding="down")) == (up, down)


@pytest.mark.parametrize("text", ["", "Gi", "1.5.2", "1 Gi", "1gi", "0x10", "1KB", "1e", "e3", "NaN", "--1", ".", "1٣"])
def test_what_is_no_quantity_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity") as error:
        milli(text)
    assert error.value.text == text


def test_thousands_of_digits_are_no_quantity_and_are_not_repeated() -> None:
    with pytest.raises(QuantityError, match="is not a quantity") as error:
        milli("9" * 5000)
    assert len(str(error.value)) < 200


@given(
    digits=st.integers(0, 10**15),
    decimals=st.integers(0, 9),
    negative=st.booleans(),
    suffix=st.sampled_from([*SUFFIXES]),
)
def test_every_quantity_equals_the_fraction_that_it_spells(
    digits: int, decimals: int, negative: bool, suffix: str
) -> None:
    padded = str(digits).rjust(decimals + 1, "0")
    number = f"{padded[:-decimals]}.{padded[-decimals:]}" if decimals else padded
    value = Fraction(digits, 10**decimals) * SUFFIXES[suffix] * (-1 if negative else 1)
    text = f"{'-' if negative else ''}{number}{suffix}"
    assert milli(text, rounding="down") == (value * 1000).__floor__()
    assert whole(text) == value.__ceil__()
    assert mebibytes(text) == (value / 2**20).__ceil__()
