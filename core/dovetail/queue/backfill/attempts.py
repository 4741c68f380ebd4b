"""Limits how many unschedulable job shapes get a reservation attempt per scheduling cycle."""

from collections.abc import Iterable
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.model.candidates import Candidate, Room, Sites, find_room

# Shapes per cycle that get an attempt without further proof. Each attempt takes several placements, and most shapes
# that follow cannot be placed by any known end.
_TRIES: Final = 3


class Tries:
    """The shapes that got an attempt in this cycle, and those that known ends make room for.

    `ledger` is the ledger of the cycle. What is known of the ends stays valid for later simulated cycles.
    """

    def __init__(self, ledger: Ledger, *, sites: Sites) -> None:
        self._ledger = ledger
        self._sites = sites
        self._tried: set[object] = set()
        self._hope: dict[object, bool] = {}
        self._empty: tuple[Ledger, FitCache] | None = None

    def take(self, job: Candidate, *, ends: Iterable[str]) -> bool:
        """Whether to attempt a reservation for the job; if so, count the attempt.

        The first job of each shape gets one. After `_TRIES` shapes, a shape gets one only if the release of all claims
        in `ends` makes room for it; after twice as many, none does.
        """
        if job.shape in self._tried or not self._is_worth_it(job, ends=ends):
            return False
        self._tried.add(job.shape)
        return True

    def clear(self) -> None:
        """Begin another cycle."""
        self._tried.clear()

    def _is_worth_it(self, job: Candidate, *, ends: Iterable[str]) -> bool:
        if not _TRIES <= len(self._tried) < 2 * _TRIES:
            return len(self._tried) < _TRIES
        if job.shape not in self._hope:
            if self._empty is None:
                # Later cycles have no more room than this.
                empty = self._ledger.copy()
                for key in ends:
                    empty.release(key)
                self._empty = empty, FitCache(empty)
            ledger, fit_cache = self._empty
            found = find_room(job, ledger=ledger, fit_cache=fit_cache, sites=self._sites)
            self._hope[job.shape] = isinstance(found, Room)
        return self._hope[job.shape]
