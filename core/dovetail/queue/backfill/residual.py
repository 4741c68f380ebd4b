"""The room that reservations leave to other jobs, cached within one scheduling cycle."""

from collections.abc import Sequence

from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.reservation import Reservation, set_aside
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, commit, find_room


class ResidualCapacity:
    """What each set of reservations leaves of the ledger of a cycle.

    Room only shrinks within a cycle, so a shape that was refused for a set is refused again without another placement.
    """

    def __init__(self, ledger: Ledger, *, sites: Sites) -> None:
        self._ledger = ledger
        self._sites = sites
        self._left: dict[tuple[str, ...], tuple[Ledger, FitCache]] = {}
        self._refused: dict[tuple[tuple[str, ...], object], Shortage] = {}

    def room(self, job: Candidate, *, kept: Sequence[Reservation], leaving: Sequence[Leaving]) -> Room | Shortage:
        """The room of a job outside all that is `kept`.

        Claims that are `leaving` cover part of the reservations.
        """
        keys = tuple(each.job.key for each in kept)
        shortage = self._refused.get((keys, job.shape))
        if shortage is not None:
            return shortage
        if keys not in self._left:
            self._left[keys] = self._without(kept, leaving=leaving)
        ledger, fit_cache = self._left[keys]
        found = find_room(job, ledger=ledger, fit_cache=fit_cache, sites=self._sites)
        if isinstance(found, Room):
            return found
        self._refused[keys, job.shape] = found.shortage
        return found.shortage

    def take(self, room: Room, *, job: Candidate) -> None:
        """Commit the room of a job that starts."""
        for ledger, _ in self._left.values():
            commit(room.claims, job=job, ledger=ledger)

    def forget(self) -> None:
        """Clear the cache: the reservations have changed, or a claim has ended."""
        self._left.clear()
        self._refused.clear()

    def _without(self, kept: Sequence[Reservation], *, leaving: Sequence[Leaving]) -> tuple[Ledger, FitCache]:
        ledger = self._ledger
        for each in kept:
            ledger = set_aside(each, ledger=ledger, leaving=leaving)
        return ledger, FitCache(ledger)
