"""Which new verdicts replace the previous ones, and when.

A number in a message changes with every pod. Writing it for each of thousands of jobs would take all the time. If the
reason stays the same, only the first jobs get a new message, position and estimate, and only at intervals.

The first reason of a job waits a moment for the estimate of its start, so that one write has both. It does not wait
while the estimates pause for longer.
"""

import asyncio
from collections.abc import Callable, Container
from collections.abc import Set as AbstractSet
from typing import Final

from dovetail.queue.verdicts import RENEWED_JOBS, Admitted, Verdict, Waits
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.decisions import Decisions

RENEWAL_SECONDS: Final = 30.0
# Jobs get their messages at different times: those due within this time share one cycle.
_TOGETHER_SECONDS: Final = 5.0
# How long a first reason waits for an estimate: where nothing else is estimated, it comes within milliseconds.
_ESTIMATE_SECONDS: Final = 1.0


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
        # By UID: the jobs whose first reason waits for an estimate, and the timers that end that.
        self._awaiting: dict[str, tuple[str, asyncio.TimerHandle]] = {}
        # By UID: the latest verdicts of cycles that are held back.
        self._held_back: dict[str, Verdict] = {}
        # When the next estimates may be made, by the loop's clock.
        self._estimates_at = 0.0

    def update(self, verdict: Verdict, *, before: Verdict | None, rank: int, key: str, at_once: bool = False) -> None:
        """Give the job with this key a verdict that is new, now or after a pause. `rank` is the position from 0.

        What was held back for the job is outdated by any verdict.
        """
        now, uid = asyncio.get_running_loop().time(), verdict.key
        self._held_back.pop(uid, None)
        if verdict == before:
            return
        is_awaited = uid in self._awaiting and _has_estimate(verdict)
        if at_once or is_awaited or not self._pacing.hold_back(verdict, before=before, rank=rank, now=now):
            self._decisions.set_verdict(uid, verdict=verdict)
            is_soon = self._estimates_at <= now + _ESTIMATE_SECONDS
            if before is None and rank < RENEWED_JOBS and not at_once and is_soon and _may_get_estimate(verdict):
                self._await_estimate(uid, key=key)
                return
            self._stop_awaiting(uid)
            (self._admitted if isinstance(verdict, Admitted) else self._changed)(key)
        elif rank < RENEWED_JOBS:
            self._held_back[uid] = verdict
            self._wake_up.within(seconds=self._pacing.renewed_in(uid, now=now))

    def latest(self, uid: str) -> Verdict | None:
        """The job's latest verdict, held back or not: an estimate must not take the turn of a newer message."""
        return self._held_back.get(uid) or self._decisions.verdicts.get(uid)

    def estimated(self, uids: Container[str]) -> None:
        """Mark those of these jobs that wait for an estimate: estimates were made, and there is none for them."""
        for uid in [uid for uid in self._awaiting if uid in uids]:
            self._mark_awaiting(uid)

    def pause_estimates(self, *, seconds: float) -> None:
        """Expect no estimates for so many seconds: where these are too many, no first reason waits for one."""
        self._estimates_at = asyncio.get_running_loop().time() + seconds
        if seconds > _ESTIMATE_SECONDS:
            for uid in list(self._awaiting):
                self._mark_awaiting(uid)

    def keep(self, uids: AbstractSet[str]) -> None:
        """Drop the verdicts on all other jobs, which no longer wait."""
        self._decisions.keep_verdicts(uids)
        self._pacing.forget_all_but(uids)
        self._held_back = {uid: verdict for uid, verdict in self._held_back.items() if uid in uids}
        for uid in [uid for uid in self._awaiting if uid not in uids]:
            self._stop_awaiting(uid)

    def _await_estimate(self, uid: str, *, key: str) -> None:
        self._stop_awaiting(uid)
        timer = asyncio.get_running_loop().call_later(_ESTIMATE_SECONDS, self._mark_awaiting, uid)
        self._awaiting[uid] = key, timer

    def _stop_awaiting(self, uid: str) -> None:
        if uid in self._awaiting:
            _, timer = self._awaiting.pop(uid)
            timer.cancel()

    def _mark_awaiting(self, uid: str) -> None:
        key, _ = self._awaiting[uid]
        self._stop_awaiting(uid)
        self._changed(key)


class VerdictPacing:
    """Decides which new verdicts a job's status gets, so that changing numbers cost few writes."""

    def __init__(self) -> None:
        self._written_at: dict[str, float] = {}

    def hold_back(self, verdict: Verdict, *, before: Verdict | None, rank: int, now: float) -> bool:
        """Whether to hold the verdict back now. `rank` is the position from 0, `now` is in seconds."""
        if isinstance(verdict, Waits) and isinstance(before, Waits) and verdict.reason == before.reason:
            early = now < self._written_at.get(verdict.key, 0.0) + RENEWAL_SECONDS
            urgent = (
                _keeps_other_room(verdict, before=before)
                or verdict.provisioning != before.provisioning
                or verdict.reshaping != before.reshaping
            )
            is_behind = rank >= RENEWED_JOBS and verdict.provisioning == before.provisioning
            if is_behind or (early and not urgent):
                return True
        self._written_at[verdict.key] = now
        return False

    def renewed_in(self, key: str, *, now: float) -> float:
        """In how many seconds the held-back verdict is due."""
        return max(_TOGETHER_SECONDS, self._written_at.get(key, 0.0) + RENEWAL_SECONDS - now)

    def forget_all_but(self, keys: AbstractSet[str]) -> None:
        """Drop the times of jobs that no longer wait."""
        self._written_at = {key: at for key, at in self._written_at.items() if key in keys}


def _may_get_estimate(verdict: Verdict) -> bool:
    """Whether the job has a place in the queue, and no estimate yet."""
    return isinstance(verdict, Waits) and verdict.queue is not None and verdict.queue.estimated_start is None


def _has_estimate(verdict: Verdict) -> bool:
    return isinstance(verdict, Waits) and verdict.queue is not None and verdict.queue.estimated_start is not None


def _keeps_other_room(verdict: Waits, *, before: Waits) -> bool:
    """Whether the job reserves other room than before: the extender follows the status."""
    known = before.queue.reserved if before.queue else None
    news = verdict.queue.reserved if verdict.queue else None
    return (known and known.kept) != (news and news.kept)
