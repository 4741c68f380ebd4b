"""For which of the jobs that do not fit a reservation is looked for, so that many in vain cost but a few."""

from collections.abc import Iterable
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.model.candidates import Candidate, Room, Sites, find_room

# Shapes for which a reservation is tried in one look, so that many jobs that no end makes room for cost but a few.
_TRIES: Final = 3


class Tries:
    """The shapes that were tried in one look, and those for which there is any hope, which holds for later looks too.

    `ledger` is the one of the look.
    """

    def __init__(self, ledger: Ledger, *, sites: Sites) -> None:
        self._ledger = ledger
        self._sites = sites
        self._tried: set[object] = set()
        self._hope: dict[object, bool] = {}
        self._empty: tuple[Ledger, FitCache] | None = None

    def take(self, job: Candidate, *, ends: Iterable[str]) -> bool:
        """Whether a reservation is to be looked for, and then count it: of those whose shape was not tried, the first,
        and after some in vain only those for whom all claims `ends` together make room."""
        if job.shape in self._tried or not self._is_worth_it(job, ends=ends):
            return False
        self._tried.add(job.shape)
        return True

    def clear(self) -> None:
        """Another look begins."""
        self._tried.clear()

    def _is_worth_it(self, job: Candidate, *, ends: Iterable[str]) -> bool:
        if not _TRIES <= len(self._tried) < 2 * _TRIES:
            return len(self._tried) < _TRIES
        if job.shape not in self._hope:
            if self._empty is None:
                # Later looks know of no more room than this.
                empty = self._ledger.copy()
                for key in ends:
                    empty.release(key)
                self._empty = empty, FitCache(empty)
            ledger, fit_cache = self._empty
            found = find_room(job, ledger=ledger, fit_cache=fit_cache, sites=self._sites)
            self._hope[job.shape] = isinstance(found, Room)
        return self._hope[job.shape]
