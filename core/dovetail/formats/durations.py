"""Times of the API and durations as kubectl prints them. Pure."""

from typing import Final

from dovetail.formats.timestamps import after, moment, timestamp

__all__ = ["after", "brief", "human", "moment", "timestamp"]

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


def brief(seconds: float) -> str:
    """A span for summaries: `0.4 s`, `12 s`, `3m20s`, `1h05m`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
