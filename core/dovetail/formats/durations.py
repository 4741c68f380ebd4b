"""Times of the API and durations as kubectl prints them. Pure."""

from typing import Final

from dovetail.formats.timestamps import after, moment, timestamp

__all__ = ["after", "human", "moment", "timestamp"]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
# The units up to each number of seconds, as in apimachinery's HumanDuration.
_SCALE: Final = (
    (2 * 60, "s"),
    (10 * 60, "ms"),
    (3 * 3600, "m"),
    (8 * 3600, "hm"),
    (2 * 86400, "h"),
    (8 * 86400, "dh"),
    (2 * 365 * 86400, "d"),
    (8 * 365 * 86400, "yd"),
)


def human(seconds: float) -> str:
    """A duration in the units that matter at its size: 95s, 3m20s, 45m, 5h10m, 2d3h."""
    rest = whole = max(0, int(seconds))
    units = next((units for limit, units in _SCALE if whole < limit), "y")
    text = ""
    for unit in units:
        amount, rest = divmod(rest, _SECONDS[unit])
        text += f"{amount}{unit}" if amount or not text else ""
    return text
