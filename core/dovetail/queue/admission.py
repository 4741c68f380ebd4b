"""Who may start now: in order of priority and age, each job is placed whole or told what it is short of.

The first job that does not fit reserves its earliest start, by the time limits of those that run. Later ones pass it
where they do not delay it: beside what is kept for it, or because their own time limit ends them before.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.gpujob import QueuePlace, Reason
from dovetail.engine.claims import Ask, Claim
from dovetail.engine.ledger import Ledger
from dovetail.engine.plan import Shortage
from dovetail.engine.sentences import gpus
from dovetail.engine.shapes import Shapes
from dovetail.queue.candidates import Candidate, Leaving, Room, Sites, commit, find_room, helps, order
from dovetail.queue.gate import Gate, Open
from dovetail.queue.preemption import Beside, Evictor, Rules
from dovetail.queue.reservation import Reservation, kept_now, set_aside
from dovetail.queue.windows import Windows, reserve_beside

# Shapes for which a reservation is tried in one look, so that many jobs that no end makes room for cost but a few.
_TRIES: Final = 3
# How far apart ends have to be to count for themselves when looking ahead: this, or a part of the time until then.
_STEP_SECONDS: Final = 10.0
_STEP_SHARE: Final = 0.005
# What no end of a job mends: such a job waits for other nodes, and keeps nobody.
_HOPELESS: Final = frozenset({"ExceedsCapacity", "NodeUnhealthy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The job may start; `claims` are what its workers would hold, in the way of `ask`: its plan."""

    key: str
    claims: tuple[Claim, ...] = ()
    ask: Ask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the first job that does not fit has reserved: where it is to start, and what of that is kept free now."""

    at_seconds: float
    claims: tuple[Claim, ...]
    now: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The job waits, and why: one word of the closed set and one sentence with numbers; and where in the queue."""

    key: str
    reason: Reason
    message: str
    queue: QueuePlace | None = None
    kept: Kept | None = None


Verdict = Admitted | Waits


def admit(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving] = (),
    gate: Gate | None = None,
    evictor: Evictor | None = None,
    windows: Windows | None = None,
) -> Iterator[Verdict]:
    """One verdict for each waiting job, in order. `ledger` and `gate` are used up: hand over copies.

    `leaving` says when claims of the ledger are taken to end; the others stay. An iterator, so that a long cycle can be
    taken in parts.
    """
    look = Look(ledger, sites=sites, leaving=leaving, gate=gate, evictor=evictor, windows=windows)
    return (look.at(job) for job in order(waiting))


class Look:
    """One look at the queue, job by job in order; then, if so wished, another one at each time when jobs end.

    Admitted jobs are committed to the ledger. During a look room only shrinks, so a shape that was refused once is
    refused again without another placement: many waiting jobs of a few shapes cost a few placements.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        sites: Sites,
        leaving: Iterable[Leaving] = (),
        gate: Gate | None = None,
        evictor: Evictor | None = None,
        windows: Windows | None = None,
    ) -> None:
        self._ledger = ledger
        self._gate = gate or Open()
        self._windows = windows or Windows()
        self._evictor = evictor or Evictor(running=(), rules=Rules())
        self._shapes = Shapes(ledger)
        self._sites = sites
        self._ends: dict[str, Leaving] = {}
        self._due: list[tuple[float, Leaving]] = []
        self._expect(leaving)
        for each in self._windows.ends():
            heapq.heappush(self._due, (each.expected_seconds, each))
        self.reservation: Reservation | None = None
        self._tried: set[object] = set()
        self._empty: tuple[Ledger, Shapes] | None = None
        self._hope: dict[object, bool] = {}
        self._kept: dict[tuple[str, ...], tuple[Ledger, Shapes]] = {}
        self._refused: dict[object, Shortage] = {}
        self._refused_before: dict[object, Shortage] = {}
        self._freed: set[str] = set()
        self._kept_from: dict[tuple[tuple[str, ...], object], Shortage] = {}
        self._now = self._before = 0.0
        self._early = False

    def advance(self) -> list[tuple[Leaving, Claim]] | None:
        """Go on to the next ends, and look anew: the claims that end then. None when nothing is known to end.

        Ends that are close to each other, for how far away they are, are taken together.
        """
        if not self._due:
            return None
        self._before = self._now
        first = max(self._now, self._due[0][0])
        until = first + max(_STEP_SECONDS, first * _STEP_SHARE)
        gone = []
        while self._due and self._due[0][0] <= until:
            at_seconds, leaving = heapq.heappop(self._due)
            self._now = max(self._now, at_seconds)
            self._early = self._early or at_seconds < leaving.at_seconds
            claim = self._ledger.release(leaving.key)
            if self._ends.pop(leaving.key, None) is not None and claim is not None:
                gone.append((leaving, claim))
        for job in {leaving.job for leaving, _ in gone}:
            self._gate.ended(job)
        self._freed = {claim.node for _, claim in gone}
        self._refused_before, self._refused = self._refused, {}
        self._tried.clear()
        self._forget_kept()
        if self.reservation is not None and (self._early or self.reservation.at_seconds <= self._now):
            # Who ends before the time that the queue reckons with leaves room for an earlier start.
            self.reservation = None
        return gone

    @property
    def now(self) -> float:
        """How many seconds from the start the look is at."""
        return self._now

    @property
    def is_after_windows(self) -> bool:
        """Whether something that was kept for a time has just ended."""
        return self._before < self._now and any(
            self._before < end.at_seconds <= self._now for end in self._windows.ends()
        )

    @property
    def leaving(self) -> list[Leaving]:
        """The ends that are expected, those of admitted jobs among them."""
        return list(self._ends.values())

    def at(self, job: Candidate) -> Verdict:
        """The verdict on the next job in order."""
        if job.least is not None:
            job = replace(job, workers=self._gate.workers(job))
        found = self._room_for(job)
        if isinstance(found, Room) or found.reason != "ExceedsCapacity":
            refused = self._gate.refusal(job)
            if refused is not None:
                return Waits(key=job.key, reason=refused.reason, message=refused.message)
        waits = self._let_go(job, found) if isinstance(found, Room) else _short_of(job, found)
        if isinstance(waits, Admitted) or (isinstance(found, Room) and self.reservation is not None):
            return waits
        cleared = self._evictor.cleared(
            job, ledger=self._ledger, sites=self._sites, beside=self._beside_windows(job, in_seconds=0.0)
        )
        if cleared is not None:
            return self._let_go(job, cleared)
        if self.reservation is None and waits.reason not in _HOPELESS:
            self._reserve(job)
        kept = self._kept_for(job)
        return waits if kept is None else replace(waits, kept=kept)

    def _room_for(self, job: Candidate) -> Room | Shortage:
        if job.ask.gpu is None:
            return Room(ask=job.ask, claims=())
        shortage = self._refused.get(job.shape) or self._still_refused(job)
        if shortage is not None:
            return shortage
        found = find_room(job, ledger=self._ledger, shapes=self._shapes, sites=self._sites)
        if isinstance(found, Room):
            return found
        self._refused[job.shape] = found.shortage
        return found.shortage

    def _reserve(self, job: Candidate) -> None:
        if job.shape in self._tried or not self._is_worth_a_try(job):
            return
        self._tried.add(job.shape)
        ledger, sites = self._ledger, self._sites
        against = self._windows.against(job, start_seconds=self._now)
        by_itself = reserve_beside(
            job, against=against, ledger=ledger, sites=sites, leaving=self.leaving, now_seconds=self._now
        )
        beside = self._beside_windows(job, in_seconds=self._evictor.takes_seconds)
        made = self._evictor.make_way(job, ledger=ledger, sites=sites, otherwise=by_itself, beside=beside)
        self.reservation = made or by_itself

    def _is_worth_a_try(self, job: Candidate) -> bool:
        """Whether a reservation is looked for: after some in vain only where all known ends together make room."""
        if not _TRIES <= len(self._tried) < 2 * _TRIES:
            return len(self._tried) < _TRIES
        if job.shape not in self._hope:
            if self._empty is None:
                # Later looks know of no more room than this.
                empty = self._ledger.copy()
                for key in self._ends:
                    empty.release(key)
                self._empty = empty, Shapes(empty)
            ledger, shapes = self._empty
            found = find_room(job, ledger=ledger, shapes=shapes, sites=self._sites)
            self._hope[job.shape] = isinstance(found, Room)
        return self._hope[job.shape]

    def _beside_windows(self, job: Candidate, *, in_seconds: float) -> Beside:
        """What is left of a ledger to a job that starts then, beside what is kept for a time and for others."""

        def beside(ledger: Ledger) -> Ledger:
            at = self._now + in_seconds
            for each in self._windows.after(job, ledger=ledger, leaving=self.leaving, start_seconds=at):
                ledger = set_aside(each, ledger=ledger, leaving=self.leaving)
            return ledger

        return beside

    def _kept_for(self, job: Candidate) -> Kept | None:
        reserved = self.reservation
        if reserved is None or reserved.job.key != job.key:
            return None
        now = kept_now(reserved, ledger=self._ledger, leaving=self.leaving)
        return Kept(at_seconds=reserved.at_seconds, claims=reserved.claims, now=tuple(now))

    def _still_refused(self, job: Candidate) -> Shortage | None:
        """The shortage of the look before, where nothing that was freed since then helps."""
        shortage = self._refused_before.get(job.shape)
        if shortage is None or helps(job, nodes=self._freed, shapes=self._shapes, sites=self._sites):
            return None
        self._refused[job.shape] = shortage
        return shortage

    def _let_go(self, job: Candidate, room: Room) -> Verdict:
        """The job fits now. Whether it may have the room while others are kept from it."""
        kept: tuple[Reservation, ...] = ()
        for by in self._to_heed(job):
            kept = (*kept, by)
            beside = self._beside(job, kept)
            if not isinstance(beside, Room):
                return _kept_back(job, by=by, shortage=beside)
            room = beside
        return self._admitted(job, room)

    def _to_heed(self, job: Candidate) -> list[Reservation]:
        """The reservations that the job may not delay: it does not end before them."""
        if job.ask.gpu is None:
            return []
        reserved = self.reservation
        others = [] if reserved is None or reserved.job.key == job.key else [reserved]
        end = self._now + job.run_seconds if job.limited else float("inf")
        for_a_time = self._windows.against(job, start_seconds=self._now)
        return [*for_a_time, *(each for each in others if end > each.at_seconds)]

    def _beside(self, job: Candidate, kept: tuple[Reservation, ...]) -> Room | Shortage:
        """The room of a job beside all that is kept."""
        keys = tuple(each.job.key for each in kept)
        shortage = self._kept_from.get((keys, job.shape))
        if shortage is not None:
            return shortage
        if keys not in self._kept:
            self._kept[keys] = self._keep(kept)
        ledger, shapes = self._kept[keys]
        found = find_room(job, ledger=ledger, shapes=shapes, sites=self._sites)
        if isinstance(found, Room):
            return found
        self._kept_from[keys, job.shape] = found.shortage
        return found.shortage

    def _expect(self, leaving: Iterable[Leaving]) -> None:
        for each in leaving:
            self._ends[each.key] = each
            heapq.heappush(self._due, (each.expected_seconds, each))

    def _keep(self, kept: Iterable[Reservation]) -> tuple[Ledger, Shapes]:
        ledger = self._ledger
        for each in kept:
            ledger = set_aside(each, ledger=ledger, leaving=self.leaving)
        return ledger, Shapes(ledger)

    def _forget_kept(self) -> None:
        self._kept.clear()
        self._kept_from.clear()

    def _admitted(self, job: Candidate, room: Room) -> Admitted:
        if self.reservation is not None and self.reservation.job.key == job.key:
            self.reservation = None
            self._forget_kept()
        self._gate.started(job if job.least is None or not room.claims else replace(job, workers=len(room.claims)))
        self._expect(commit(room.claims, job=job, ledger=self._ledger, at_seconds=self._now))
        for ledger, _ in self._kept.values():
            commit(room.claims, job=job, ledger=ledger)
        return Admitted(key=job.key, claims=room.claims, ask=room.ask)


def _short_of(job: Candidate, shortage: Shortage) -> Waits:
    return Waits(key=job.key, reason=shortage.reason, message=shortage.message)


def _kept_back(job: Candidate, *, by: Reservation, shortage: Shortage) -> Waits:
    """The words for a job that fits, but not beside what is kept for one before it, or for a time to come."""
    if by.words:
        return Waits(key=job.key, reason="Reserved", message=f"{shortage.message}; {by.words}")
    namespace, _, name = by.job.name.partition("/")
    # Names of other namespaces are nobody's business here.
    who = name if job.name.partition("/")[0] == namespace else "a job of another namespace"
    above = by.job.priority > job.priority
    before = "which has used less of late" if by.job.share < job.share else "which is older"
    rank = f"of priority {by.job.priority}" if above else before
    return Waits(
        key=job.key,
        reason="Priority" if above else "Reserved",
        message=f"{shortage.message}; {gpus(by.devices)} are kept for {who}, {rank}",
    )
