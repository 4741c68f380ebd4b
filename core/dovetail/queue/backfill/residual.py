"""Reservations of one cycle: for which jobs, the room that they leave to others, and which job shapes get an attempt.

And what cycles find out about shapes that have no room, for later cycles on the same ground. A module of its own: the
cycle reads as its steps, and these are caches below them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.settings import Limits
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.backfill.reservation import Reservation, set_aside
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, commit, find_room, helps


class JobReservations:
    """The reservations for waiting jobs, next to the advance reservations `windows`.

    That of the first job that does not fit may be postponed: most simulated cycles start no job behind it, and never
    read it.
    """

    def __init__(self, *, windows: Windows) -> None:
        # The rooms that come back to jobs within their guarantees, and those from which others move.
        self.promised: list[Reservation] = []
        # Of a later job, for which others are preempted where that does not delay the first one.
        self.preempting: Reservation | None = None
        self._windows = windows
        self._first: Reservation | None = None
        self._make: Callable[[], Reservation | None] | None = None

    @property
    def first(self) -> Reservation | None:
        """The reservation of the first job that does not fit."""
        if self._make is not None:
            make, self._make = self._make, None
            self._first = make()
        return self._first

    @property
    def has_first(self) -> bool:
        """Whether there is one, made or postponed."""
        return self._make is not None or self._first is not None

    def reserve(self, first: Reservation | None) -> None:
        """Set the first one."""
        self._first, self._make = first, None

    def postpone(self, make: Callable[[], Reservation | None]) -> None:
        """Let `make` make the first one when it is read, which is before the ledger changes."""
        self._first, self._make = None, make

    def begin(self, *, first: Reservation | None) -> None:
        """Begin another cycle, in which that one goes on."""
        self.promised, self.preempting = [], None
        self.reserve(first)

    def drop(self, key: str) -> bool:
        """Drop what is reserved for a job that starts. Returns whether there was something."""
        # A cycle judges each job once, so only one that outlives a simulated cycle can be of this job.
        if self._first is None or self._first.job.key != key:
            return False
        self._first = None
        return True

    def of(self, key: str) -> Reservation | None:
        """That of a job, if it is made."""
        made = (*self.promised, self._first, self.preempting)
        return next((each for each in made if each is not None and each.job.key == key), None)

    def all(self) -> list[Reservation]:
        """All of them."""
        return [*self.promised, *(each for each in (self.first, self.preempting) if each is not None)]

    def delayed_by(self, job: Candidate, *, start_seconds: float) -> list[Reservation]:
        """Those of other jobs that begin before this one ends."""
        end = start_seconds + job.run_seconds if job.limited else float("inf")
        return [each for each in self.all() if each.job.key != job.key and end > each.at_seconds]

    def against(self, job: Candidate, *, start_seconds: float) -> list[Reservation]:
        """The reservations and advance reservations that the job must not delay."""
        if job.ask.gpu is None:
            return []
        windows = self._windows.against(job, start_seconds=start_seconds)
        return [*windows, *self.delayed_by(job, start_seconds=start_seconds)]

    def is_backfilled(self, job: Candidate, *, room: Room, start_seconds: float) -> bool:
        """Whether its time limit alone lets the job use nodes that reservations keep."""
        if not job.limited or not room.claims:
            return False
        respected = {each.job.key for each in self.against(job, start_seconds=start_seconds)}
        without_limit = self.against(replace(job, limited=False), start_seconds=start_seconds)
        nodes = {claim.node for claim in room.claims}
        passed = (each for each in without_limit if each.job.key not in respected)
        return any(claim.node in nodes for each in passed for claim in each.claims)


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


# Shapes per cycle that get an attempt without further proof. Each attempt takes several placements, and most shapes
# that follow cannot be placed by any known end.
_TRIES: Final = 3


class Tries:
    """Limits how many job shapes that do not fit get a reservation attempt per cycle.

    It has the shapes that got one in this cycle, and whether known ends make room for a shape: `hope`, which may begin
    with what an earlier cycle on the same ground found.

    `ledger` is the ledger of the cycle. What is known of the ends stays valid for later simulated cycles.
    """

    def __init__(self, ledger: Ledger, *, sites: Sites, hope: Mapping[object, bool] = MappingProxyType({})) -> None:
        self._ledger = ledger
        self._sites = sites
        self._tried: set[object] = set()
        self.hope = dict(hope)
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
        return self.has_hope(job, ends=ends)

    def has_hope(self, job: Candidate, *, ends: Iterable[str]) -> bool:
        """Whether the release of all claims in `ends` makes room for the job."""
        if job.shape not in self.hope:
            if self._empty is None:
                # Later cycles have no more room than this.
                empty = self._ledger.copy()
                for key in ends:
                    empty.release(key)
                self._empty = empty, FitCache(empty)
            ledger, fit_cache = self._empty
            # Where not even one worker fits, the sentence that `find_room` words takes half of its time.
            nodes = self._sites.get(job.site) or ledger.nodes()
            self.hope[job.shape] = helps(
                job, nodes=nodes, fit_cache=fit_cache, sites=self._sites, ledger=ledger
            ) and isinstance(find_room(job, ledger=ledger, fit_cache=fit_cache, sites=self._sites), Room)
        return self.hope[job.shape]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that decides whether a shape has room at the beginning of a cycle.

    - `changes`: the number of changes of the cluster's ledger
    - `limits`: its limits of tenants
    - `claims`: what is claimed on a copy of it for admitted workers without a node
    - `ends`: the keys of the claims that are known to end
    - `sites`: the nodes of each site of the cycle
    """

    changes: int
    limits: Limits
    claims: tuple[Claim, ...] = ()
    ends: frozenset[str] = frozenset()
    sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortages:
    """What cycles on one ground find out of shapes. A cycle reads it, and adds what it finds.

    - `refused`: those without room, found before the cycle commits or releases anything
    - `hope`: whether the known ends make room for a shape. Simulated cycles add to it too: what starts in them ends.
    """

    refused: dict[object, Shortage] = field(default_factory=dict)
    hope: dict[object, bool] = field(default_factory=dict)


class KnownShortages:
    """The shortages of the last ground."""

    def __init__(self) -> None:
        self._ground: Ground | None = None
        self._found = Shortages()

    def on(self, ground: Ground | None) -> Shortages:
        """What is known on this ground. None is one that no other cycle has.

        Other cycles may begin while one pauses, so what it holds stays with its ground.
        """
        if ground is None or ground != self._ground:
            self._ground, self._found = ground, Shortages()
        return self._found
