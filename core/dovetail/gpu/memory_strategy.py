"""Memory strategies: how much of a shared device's memory may be promised, as a name or a fraction. Pure.

Conservative   0.8
Aggressive     0.95
Dynamic        what the job is known to need; 0.8 while nothing is known
0.7            that fraction: from 0.05 to 1, with at most three decimals
"""

import re
from typing import Final

from dovetail.gpu.request import RequestError

CONSERVATIVE: Final = "Conservative"
AGGRESSIVE: Final = "Aggressive"
DYNAMIC: Final = "Dynamic"
NAMES: Final = (CONSERVATIVE, AGGRESSIVE, DYNAMIC)
FRACTIONS: Final = {CONSERVATIVE: 0.8, AGGRESSIVE: 0.95}
ALLOWED: Final = f"{', '.join(NAMES)} or a fraction from 0.05 to 1, such as 0.7"
# A number from 0.05 to 1 with at most three decimals, for RE2 and Python alike.
_FRACTION: Final = r"1(\.0{1,3})?|0\.(0[5-9][0-9]?|[1-9][0-9]{0,2})"
PATTERN: Final = rf"^({'|'.join(NAMES)}|{_FRACTION})$"
# What a promise follows: Dynamic is a strategy, but no fraction.
GUARD_PATTERN: Final = rf"^({'|'.join(FRACTIONS)}|{_FRACTION})$"
_STRATEGY: Final = re.compile(rf"({'|'.join(NAMES)}|{_FRACTION})")


def fraction_of(strategy: str, *, field: str = "memory strategy") -> float:
    """The part of a shared device's memory that may be promised, 0 to 1, before anything is learned.

    Raises `RequestError`, which names `field`.
    """
    if _STRATEGY.fullmatch(strategy) is None:
        raise RequestError(strategy, field=field, problem=f"allowed are {ALLOWED}", example="Aggressive or 0.7")
    if strategy == DYNAMIC:
        return FRACTIONS[CONSERVATIVE]
    return FRACTIONS[strategy] if strategy in FRACTIONS else float(strategy)


def text_of(fraction: float) -> str:
    """The fraction as a strategy: by its name where it has one."""
    return next((name for name, part in FRACTIONS.items() if part == fraction), f"{fraction:g}")
