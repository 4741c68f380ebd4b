"""Kubernetes quantities (`100m`, `1.5Gi`, `1e3`) as exact integers, never as floats.

A remaining part of the unit rounds up, as Kubernetes does when it reads a quantity as a whole number. Where too much
would be harmful (the capacity of a node), pass `rounding="down"`.
"""

import re
from functools import lru_cache
from typing import Final, Literal

# Enough for every count here, and far below the number of digits that Python refuses to read.
_MOST_DIGITS: Final = 9


def read_whole(text: str, *, otherwise: int) -> int:
    """The number in a text of a few ASCII digits; `otherwise` for any other text."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else otherwise


# The API server writes texts; templates of users also contain plain numbers.
Quantity = str | int | float
Rounding = Literal["up", "down"]

_MIB: Final = 1 << 20
_TEXT: Final = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]))?", re.ASCII)
# Python refuses to read thousands of digits as a number, and no amount has as many.
_LONGEST: Final = 512
_SHOWN: Final = 64
_BINARY: Final = {suffix: 10 * power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class QuantityError(ValueError):
    """A text that is not a quantity."""

    def __init__(self, text: Quantity) -> None:
        self.text = text
        super().__init__(
            f'"{str(text)[:_SHOWN]}" is not a quantity; write a number with an optional unit, such as 100m, 2, 1.5Gi '
            "or 16G"
        )


def milli(quantity: Quantity, *, rounding: Rounding = "up") -> int:
    """In thousandths: `100m` is 100, `2` is 2000. Raises `QuantityError`."""
    return _whole(str(quantity), multiply=1000, divide=1, rounding=rounding)


def whole(quantity: Quantity, *, rounding: Rounding = "up") -> int:
    """In units, which are bytes for memory: `1Ki` is 1024, `1500m` is 2. Raises `QuantityError`."""
    return _whole(str(quantity), multiply=1, divide=1, rounding=rounding)


def mebibytes(quantity: Quantity, *, rounding: Rounding = "up") -> int:
    """Memory in MiB: `1.5Gi` is 1536, `1G` is 954. Raises `QuantityError`."""
    return _whole(str(quantity), multiply=1, divide=_MIB, rounding=rounding)


@lru_cache(maxsize=8192)
def _whole(text: str, *, multiply: int, divide: int, rounding: Rounding) -> int:
    numerator, denominator = _ratio(text)
    numerator, denominator = numerator * multiply, denominator * divide
    return -(-numerator // denominator) if rounding == "up" else numerator // denominator


def _ratio(text: str) -> tuple[int, int]:
    found = _TEXT.fullmatch(text)
    if found is None or not (found[2] or found[3]) or len(text) > _LONGEST:
        raise QuantityError(text)
    sign, integer, fraction, exponent, suffix = found.groups(default="")
    value = int(f"{sign}{integer}{fraction}")
    power = int(exponent or 0) + _DECIMAL.get(suffix, 0) - len(fraction)
    value <<= _BINARY.get(suffix, 0)
    return (value * 10**power, 1) if power >= 0 else (value, 10**-power)
