"""The age of each node's measurements, and when they are too old to count.

Pure: clocks are arguments.

Agents write the time of their own machine, which may be wrong. So a report's age counts from when this process saw it
change, on a monotonic clock. Only a report that existed when its node was first seen gets its age from the time in it,
and one from the future counts as new. A wrong clock can thus hide a silent agent for one bound at most, or make a
node's measurements stale until its next report.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.formats.durations import human


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    status: GPUNodeStatus
    since: float


class Freshness:
    """The age of each node's report.

    `clock` is monotonic, in seconds; `wall` is the time of day.
    """

    def __init__(
        self, *, max_age_seconds: float, clock: Callable[[], float], wall: Callable[[], datetime] | None = None
    ) -> None:
        self.clock = clock
        self._wall = wall or _utc_now
        self._max_age_seconds = max_age_seconds
        self._reports: dict[str, _Report] = {}
        self._due: list[tuple[float, str]] = []
        self._next: dict[str, float] = {}

    def report(self, name: str, *, status: GPUNodeStatus) -> str:
        """Record a GPUNode. Returns why its measurements do not count; empty when they do."""
        known = self._reports.get(name)
        if known is None:
            since = self.clock() - self._age_at_first_sight(status)
        elif known.status == status:
            since = known.since
        else:
            since = self.clock()
        self._reports[name] = _Report(status=status, since=since)
        if status.observed_at is None:
            return f"nothing measured on node {name} yet: promises alone count"
        if self._is_old(name):
            # Its caller knows it now. A check of what is old already would say so after each time that it is read.
            return self._note(name)
        self._look_at(name, due=since + self._max_age_seconds)
        return ""

    def age(self, name: str) -> str:
        """How old a node's report is, such as 12m; empty for a node that has never reported."""
        known = self._reports.get(name)
        if known is None or known.status.observed_at is None:
            return ""
        seconds = self.clock() - known.since
        return human(seconds) if seconds < float("inf") else "?"

    def forget(self, name: str) -> None:
        """Drop a GPUNode that was deleted."""
        self._reports.pop(name, None)

    def grown_old(self) -> dict[str, str]:
        """Nodes whose measurements have become too old since the last call, and the reason."""
        notes: dict[str, str] = {}
        while self._due and self._due[0][0] <= self.clock():
            due, name = heapq.heappop(self._due)
            if self._next.get(name) != due:
                continue
            del self._next[name]
            if name not in self._reports:
                continue
            if self._is_old(name):
                notes[name] = self._note(name)
            else:
                self._look_at(name, due=self._reports[name].since + self._max_age_seconds)
        return notes

    def _look_at(self, name: str, *, due: float) -> None:
        """Check the node at `due` at the latest: one entry a node, however often it reports."""
        if due < self._next.get(name, float("inf")):
            self._next[name] = due
            heapq.heappush(self._due, (due, name))

    def _is_old(self, name: str) -> bool:
        # The same sum as for the check: with other rounding the check would repeat forever.
        return self.clock() >= self._reports[name].since + self._max_age_seconds

    def _note(self, name: str) -> str:
        # The limit, not the age: an age would change the text, and so the status, every minute.
        bound = (
            f"{self._max_age_seconds / 60:.0f} min" if self._max_age_seconds >= 120 else f"{self._max_age_seconds:g} s"
        )
        return f"measurements of node {name} are more than {bound} old: promises alone count"

    def _age_at_first_sight(self, status: GPUNodeStatus) -> float:
        try:
            age = self._wall() - datetime.fromisoformat(status.observed_at or "")
        except (ValueError, TypeError):
            return float("inf")
        return max(0.0, age.total_seconds())


def timeless() -> Freshness:
    """A freshness by which measurements of any age count."""
    return Freshness(max_age_seconds=float("inf"), clock=lambda: 0.0)


def _utc_now() -> datetime:
    return datetime.now(UTC)
