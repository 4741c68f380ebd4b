"""Which new verdicts replace the previous ones, and when.

A number in a message changes with every pod. Writing it for each of thousands of jobs would take all the time. If the
reason stays the same, only the first jobs get a new message, position and estimate, and only at intervals.
"""

import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from dovetail.queue.verdicts import RENEWED_JOBS, Admitted, Verdict, Waits, is_kept
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.decisions import Decisions

RENEWAL_SECONDS: Final = 30.0
# Jobs get their messages at different times: those due within this time share one cycle.
_TOGETHER_SECONDS: Final = 5.0


class VerdictUpdates:
    """Records new verdicts, at once or after a pause, and marks their jobs as changed."""

    def __init__(
        self,
        decisions: Decisions,
        *,
        changed: Callable[[str], None],
        admitted: Callable[[str], None],
        wake_up: WakeUp,
    ) -> None:
        self._decisions = decisions
        self._changed = changed
        self._admitted = admitted
        self._wake_up = wake_up
        self._pacing = VerdictPacing()

    def update(self, verdict: Verdict, *, before: Verdict | None, rank: int, key: str, at_once: bool = False) -> None:
        """Give the job with this key a new verdict, now or after a pause. `rank` is the position from 0."""
        now = time.monotonic()
        if at_once or not self._pacing.hold_back(verdict, before=before, rank=rank, now=now):
            self._decisions.set_verdict(verdict.key, verdict=verdict)
            (self._admitted if isinstance(verdict, Admitted) else self._changed)(key)
        elif rank < RENEWED_JOBS:
            self._wake_up.within(seconds=self._pacing.renewed_in(verdict.key, now=now))

    def keep(self, uids: AbstractSet[str]) -> None:
        """Drop the verdicts on all other jobs, which no longer wait."""
        self._decisions.keep_verdicts(uids)
        self._pacing.forget_all_but(uids)


class VerdictPacing:
    """Decides which new verdicts a job's status gets, so that changing numbers cost few writes."""

    def __init__(self) -> None:
        self._written_at: dict[str, float] = {}

    def hold_back(self, verdict: Verdict, *, before: Verdict | None, rank: int, now: float) -> bool:
        """Whether to hold the verdict back now. `rank` is the position from 0, `now` is in seconds."""
        if isinstance(verdict, Waits) and isinstance(before, Waits) and verdict.reason == before.reason:
            early = now < self._written_at.get(verdict.key, 0.0) + RENEWAL_SECONDS
            urgent = (
                _is_first_estimate(verdict, before=before)
                or _keeps_other_room(verdict, before=before)
                or verdict.provisioning != before.provisioning
                or verdict.reshaping != before.reshaping
            )
            if is_kept(before, verdict=verdict, rank=rank) or (early and not urgent):
                return True
        self._written_at[verdict.key] = now
        return False

    def renewed_in(self, key: str, *, now: float) -> float:
        """In how many seconds the held-back verdict is due."""
        return max(_TOGETHER_SECONDS, self._written_at.get(key, 0.0) + RENEWAL_SECONDS - now)

    def forget_all_but(self, keys: AbstractSet[str]) -> None:
        """Drop the times of jobs that no longer wait."""
        self._written_at = {key: at for key, at in self._written_at.items() if key in keys}


def _is_first_estimate(verdict: Waits, *, before: Waits) -> bool:
    known, news = before.queue, verdict.queue
    return news is not None and news.estimated_start is not None and (known is None or known.estimated_start is None)


def _keeps_other_room(verdict: Waits, *, before: Waits) -> bool:
    """Whether the job reserves other room than before: the extender follows the status."""
    known = before.queue.reserved if before.queue else None
    news = verdict.queue.reserved if verdict.queue else None
    return (known and known.kept) != (news and news.kept)
