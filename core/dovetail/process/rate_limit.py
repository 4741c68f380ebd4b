"""A rate limit: a burst at once, then one event per interval.

Pure; the clock is an argument.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A token bucket: `burst` tokens at most, one more every `every_seconds`."""

    burst: int
    every_seconds: float


class Spending:
    """What is left of an allowance. It starts full."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        # When the bucket is full again (theoretical arrival time of the GCRA).
        self._full_at = float("-inf")

    def wait_seconds(self, *, now: float) -> float:
        """Seconds until one token may be spent; 0 where it may be now."""
        backlog = max(0.0, self._full_at - now)
        return max(0.0, backlog - (self._allowance.burst - 1) * self._allowance.every_seconds)

    def spend(self, *, now: float) -> None:
        """Spend one token. Call `wait_seconds` first."""
        self._full_at = max(self._full_at, now) + self._allowance.every_seconds

    def is_full(self, *, now: float) -> bool:
        """Whether nothing was spent for so long that a new bucket would be the same."""
        return self._full_at <= now
