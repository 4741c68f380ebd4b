"""A moment for our watch to catch up with kube-scheduler's, before a pod that waits is refused once more.

kube-scheduler asks again about a refused pod when a bound one goes. It hears of that by a watch of its own and may be
some milliseconds ahead of ours: refused then, the pod would not be asked about again for minutes. So a pod that was
refused before, and would be again for want of room, waits until the ledger changes, 50 ms at the most. kube-scheduler
decides one pod at a time, so after such a wait none is granted for a while.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from dovetail.engine.ledger import Ledger
from dovetail_extender.decisions import Filtered

WAIT_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.1
_STEP_SECONDS: Final = 0.005
_REMEMBERED: Final = 10_000


class Patience:
    """Decides with `decide`, and again when the ledger has changed meanwhile."""

    def __init__(self, *, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._next_wait_at = float("-inf")

    async def filter(self, decide: Callable[[], Filtered], *, uid: str) -> Filtered:
        """What `decide` says of the pod, after a moment of patience where that may help."""
        found = decide()
        if not _wants_room(found):
            self._refused.pop(uid, None)
            return found
        asked_again = uid in self._refused
        self._remember(uid)
        if not asked_again or self._clock() < self._next_wait_at:
            return found
        self._next_wait_at = self._clock() + PAUSE_SECONDS
        return await self._once_more(decide, found)

    async def _once_more(self, decide: Callable[[], Filtered], found: Filtered) -> Filtered:
        seen = self._ledger.changes
        for _ in range(round(WAIT_SECONDS / _STEP_SECONDS)):
            await asyncio.sleep(_STEP_SECONDS)
            if self._ledger.changes != seen:
                seen = self._ledger.changes
                found = decide()
                if found.nodes:
                    return found
        return found

    def _remember(self, uid: str) -> None:
        self._refused[uid] = None
        self._refused.move_to_end(uid)
        if len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)


def _wants_room(found: Filtered) -> bool:
    """Whether the pod fits nowhere, and somewhere only because of others."""
    return not found.nodes and any(not refusal.unresolvable for refusal in found.refusals.values())
