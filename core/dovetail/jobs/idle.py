"""Jobs with idle GPUs: since when, and which action follows. Pure: time is an argument."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

IdleAction = Literal["Warn", "Suspend", "End"]
OFF: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRules:
    """When a job is idle, and what follows. Everything is off while `after_seconds` is 0.

    A device works when its utilization (0-1) is at least `below`. `grace_seconds` lie between the warning and `action`.
    """

    after_seconds: float = OFF
    below: float = 0.05
    grace_seconds: float = 600.0
    action: IdleAction = "Warn"


class IdleTimes:
    """Since when each job does no GPU work, by UID."""

    def __init__(self, rules: IdleRules) -> None:
        self._rules = rules
        self._since: dict[str, datetime] = {}

    def update(
        self, uid: str, *, utilization: float | None, now: datetime, told_at: datetime | None = None
    ) -> datetime | None:
        """Since when the job is idle; None while it works or has not been idle for long enough.

        `utilization` (0-1) is that of its busiest device now; None if it was not measured, which changes nothing.
        `told_at` is the time of the first idle warning, which survives a restart of this process.
        """
        if utilization is not None and utilization >= self._rules.below:
            self._since.pop(uid, None)
            return None
        if utilization is None and uid not in self._since and told_at is None:
            return None
        before = now if told_at is None else told_at - timedelta(seconds=self._rules.after_seconds)
        since = self._since.setdefault(uid, before)
        return since if (now - since).total_seconds() >= self._rules.after_seconds else None

    def is_due(self, since: datetime, *, utilization: float | None, now: datetime) -> bool:
        """Whether an action follows now. A missing measurement stops nothing."""
        if self._rules.action == "Warn" or utilization is None:
            return False
        return (now - since).total_seconds() >= self._rules.after_seconds + self._rules.grace_seconds

    def forget_all_but(self, uids: set[str]) -> None:
        """Drop what was recorded of jobs that no longer run."""
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}
