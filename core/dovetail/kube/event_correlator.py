"""Which events are worth a request: repeats are counted, and each object has a budget. Pure: the clock is an argument.

Names and defaults are those of client-go's EventCorrelator. Unlike client-go, a repeat never changes an event that
exists, because no component of Dovetail may patch events: the next event that is sent has the count of the repeats.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Generic, Literal, TypeVar

from dovetail.api.builtin import ObjectReference, Severity

K = TypeVar("K")
V = TypeVar("V")

Skipped = Literal["repeated", "limited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What happened to an object `count` times, from `first` to `last`. `host` is the node that reports it.

    `adds` says that it adds to what other events say of the object: none of them replaces it, or is replaced by it.
    """

    about: ObjectReference
    severity: Severity
    reason: str
    message: str
    first: datetime
    last: datetime
    count: int = 1
    host: str = ""
    adds: bool = False

    @property
    def sameness(self) -> tuple[str, str, str, str]:
        """Two occurrences are repeats of each other if this is equal."""
        return self.about.uid, self.severity, self.reason, self.message

    def followed_by(self, later: "Occurrence") -> "Occurrence":
        """This one and a later repeat as one occurrence."""
        return replace(later, first=self.first, count=self.count + later.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """How many events a recorder sends.

    burst_size            events about one object that may come at once
    qps                   events about one object per second after a burst
    max_interval_seconds  time after an event in which its repeats are counted and not sent; 0: each is sent
    lru_cache_size        objects, and events, that are remembered for these limits
    """

    burst_size: int = 25
    qps: float = 1 / 300
    max_interval_seconds: float = 0.0
    lru_cache_size: int = 4096


DEFAULT_LIMITS: Final = EventLimits()


class _Recent(Generic[K, V]):
    """A table of the keys that were written last, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def store(self, key: K, *, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop_oldest_while(self, is_spent: Callable[[V], bool]) -> None:
        """Forget entries from the one that was written first, up to the first one that is not spent."""
        while self._entries and is_spent(next(iter(self._entries.values()))):
            self._entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Sent:
    """When an event was sent, and its repeats since."""

    at: float
    repeats: Occurrence | None = None


class EventCorrelator:
    """Decides about the events of one recorder."""

    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._sent: _Recent[tuple[str, str, str, str], _Sent] = _Recent(limits.lru_cache_size)
        # By the object's UID: how many events it may have, and when that was counted.
        self._budgets: _Recent[str, tuple[float, float]] = _Recent(limits.lru_cache_size)

    def correlate(self, seen: Occurrence, *, now: float) -> Occurrence | Skipped:
        """What to send for an occurrence at `now`, in seconds of a monotonic clock, or why nothing is sent."""
        before = self._sent.get(seen.sameness)
        repeats = seen if before is None or before.repeats is None else before.repeats.followed_by(seen)
        if before is not None and now - before.at < self._limits.max_interval_seconds:
            self._sent.store(seen.sameness, value=_Sent(before.at, repeats))
            return "repeated"
        if not self._has_budget(seen.about.uid, now=now):
            return "limited"
        if self._limits.max_interval_seconds:
            self._sent.store(seen.sameness, value=_Sent(now))
        return repeats

    def _has_budget(self, uid: str, *, now: float) -> bool:
        """Take one event off the object's budget, if there is one: a token bucket."""
        tokens = self._refilled(self._budgets.get(uid) or (float(self._limits.burst_size), now), now=now)
        self._budgets.store(uid, value=(tokens - 1 if tokens >= 1 else tokens, now))
        # A budget that is full again is the budget of an object that was never seen.
        self._budgets.drop_oldest_while(lambda each: self._refilled(each, now=now) >= self._limits.burst_size)
        return tokens >= 1

    def _refilled(self, budget: tuple[float, float], *, now: float) -> float:
        """The tokens that a budget has at `now`."""
        tokens, at = budget
        return min(self._limits.burst_size, tokens + (now - at) * self._limits.qps)
