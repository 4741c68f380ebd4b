"""How many seats of a record are kept: for the pods of its guest that exist or can still come. No I/O.

A module of its own: a count with timers of its own, which `keeper` asks about one guest at a time.
"""

import time
from collections.abc import Callable
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.jobs.guests.pod_group import PodGroup
from dovetail.pods.seats import can_come
from dovetail_operator.state.state import State
from dovetail_operator.watchers.guests.directory import Directory, Known

# Nothing but its owner creates a pod of a group again: one that is missing or has failed keeps its seat for this time.
REPLACED_SECONDS: Final = 20.0
_HAIR_SECONDS: Final = 0.1


class SeatCounts:
    """Counts seats. `look_again` is called with the key of a record whose count changes by time alone."""

    def __init__(
        self,
        state: State,
        *,
        guests: Directory,
        look_again: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._guests = guests
        self._look_again = look_again
        self._clock = clock
        # By the key of its record: how many pods a started group lacks, and since when.
        self._short: dict[str, tuple[int, float]] = {}

    def forget(self, key: str) -> None:
        """Drop a guest that has gone."""
        self._short.pop(key, None)

    def seats(self, found: Known, *, record: GPUJob) -> int:
        """How many workers of the record exist or can still come."""
        placement, coming = record.status.placement, self.coming(found, record=record)
        kept = record.spec.workers - (0 if placement is None else len(placement.released))
        return max(0, min(kept, coming - self.added(found)))

    def coming(self, found: Known, *, record: GPUJob) -> int:
        """How many pods of the guest with the record's request exist or can still come, with a seat of it or without.

        One that waits by itself counts too.
        """
        pods = self._state.store.pods.of_run(record.metadata.uid)
        succeeded = sum(pod.status.phase == "Succeeded" for pod in pods)
        count = can_come(found.guest, kind=found.kind, record=record, succeeded=succeeded)
        if isinstance(found.guest, PodGroup):
            count += self._replaceable(found.guest, key=found.key) + len(found.guest.more)
        return count

    def added(self, found: Known) -> int:
        """How many unfinished pods wait or run by themselves by which the guest has grown."""
        pods = (each.guest for each in self._guests.added_to(found.key))
        return sum(isinstance(pod, PodGroup) and bool(pod.going) for pod in pods)

    def _replaceable(self, group: PodGroup, *, key: str) -> int:
        """For how many pods more or, below 0, for how many fewer than it has a group keeps seats."""
        if not (short := group.missing + group.failed):
            self._short.pop(key, None)
            return 0
        now = self._clock()
        count, since = self._short.get(key, (0, now))
        if short != count:
            self._short[key] = (short, since := now)
        left = since + REPLACED_SECONDS - now
        if left <= 0:
            return -group.failed
        # Each time: the timer of an earlier count fires before this one is due, and then there is no other.
        self._look_again(key, left + _HAIR_SECONDS)
        return group.missing
