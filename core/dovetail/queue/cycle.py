"""The scheduling cycle: each waiting job, in order, is placed whole or gets a reason.

The first job that does not fit gets a reservation for its earliest start, from the time limits of running jobs. Later
jobs backfill: they start where they do not delay it, outside the reserved devices or within their own time limit.
"""

import heapq
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.jobs.cpu_fallback import falls_back, on_cpu
from dovetail.logs import get_logger
from dovetail.queue import verdicts
from dovetail.queue.backfill.advance_reservation import Windows, reserve_around
from dovetail.queue.backfill.reservation import Reservation, kept_now
from dovetail.queue.backfill.residual import JobReservations, ResidualCapacity, Shortages, Tries
from dovetail.queue.growing.growth import Growth, room_without_gpus
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, commit, find_room, helps, order
from dovetail.queue.model.gate import Gate, Open
from dovetail.queue.preemption.give_back import GiveBack
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.reclaim import Reclaim
from dovetail.queue.preemption.victims import Residual, residual_for
from dovetail.queue.quota_tree.turns import in_turn
from dovetail.queue.verdicts import Admitted, Kept, Verdict, Waits, kept_back, waits_because, with_clause

# Simulated ends closer together than so many seconds, or this share of the time until then, count as one.
_STEP_SECONDS: Final = 10.0
_STEP_SHARE: Final = 0.005
# Reasons that no end of a job changes: such a job waits for other nodes and blocks no one.
_HOPELESS: Final = frozenset({"ExceedsCapacity", "NodeUnhealthy"})
_NO_GPUS: Final = Ask(gpu=None)
_LOGGER: Final = "dovetail.queue"

log = get_logger(_LOGGER)


def admit(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving] = (),
    gate: Gate | None = None,
    evictor: Evictor | None = None,
    windows: Windows | None = None,
    growth: Growth | None = None,
    shortages: Shortages | None = None,
    previous: verdicts.Previous = verdicts.NONE_BEFORE,
) -> Iterator[Verdict]:
    """Yield one verdict for each waiting job, in order, without those that `previous` has and that stay.

    Uses up `ledger` and `gate`: pass copies.

    `leaving` says when claims of the ledger are expected to end; all others stay. `growth` requests new nodes for jobs
    that do not fit. `shortages` are those of earlier cycles on the same ground. An iterator, so that the caller
    can spread a long cycle over several turns.
    """
    look = SchedulingCycle(
        ledger,
        sites=sites,
        leaving=leaving,
        gate=gate,
        evictor=evictor,
        windows=windows,
        growth=growth,
        shortages=shortages,
    )
    yield from verdicts.new_verdicts(look.in_order(waiting), judge=look.at, repeats=look.repeats, previous=previous)
    look.end()


class SchedulingCycle:
    """One scheduling cycle, job by job in order; on request, simulated ones at each later end.

    Admitted jobs are committed to the ledger. Within a cycle room only grows where the claims of victims that have left
    are released. Else a shape that was refused once is refused again without another placement: many waiting jobs of a
    few shapes cost a few placements.
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
        growth: Growth | None = None,
        shortages: Shortages | None = None,
    ) -> None:
        self._ledger = ledger
        self._growth = growth
        self._gate = gate or Open()
        self._windows = windows or Windows()
        self._evictor = evictor or Evictor(running=(), rules=Rules())
        loans = self._evictor.loans = self._gate.loans
        self._reclaim = None if loans is None else Reclaim(self._evictor, loans=loans)
        self._fit_cache = FitCache(ledger)
        self._sites = sites
        self._ends: dict[str, Leaving] = {}
        # A heap from the first call of `advance` on.
        self._due: list[tuple[float, Leaving]] = []
        self._is_ahead = self._early = False
        self._expect(leaving)
        self._due += [(each.expected_seconds, each) for each in self._windows.ends()]
        self._reservations = JobReservations(windows=self._windows)
        # None once the ledger differs from that at the beginning.
        self._shortages: Shortages | None = shortages or Shortages()
        # Still shared with other futures after the ledger has changed.
        self._hope = self._shortages.hope
        self._tries = Tries(ledger, sites=sites, hope=self._shortages.hope)
        self._kept = ResidualCapacity(ledger, sites=sites)
        self._refused: dict[object, Shortage] = dict(self._shortages.refused)
        self._refused_before: dict[object, Shortage] = {}
        self._freed: set[str] = set()
        self._now = self._before = 0.0
        # Jobs that others end for and jobs within guarantees or with advance reservations are judged by their names.
        apart = self._reclaim is not None or bool(self._windows.wanted or self._windows.reservations)
        self._repeats = verdicts.Repeats(gate=self._gate, alone=self._evictor.served, all_alone=apart)
        # None where each job is to be judged: growing pools count all of them.
        self.repeats = self._repeats if growth is None else None
        # Asked once: the cycle takes microseconds for most jobs.
        self._logs = logging.getLogger(_LOGGER).isEnabledFor(logging.DEBUG)

    def advance(self) -> list[tuple[Leaving, Claim]] | None:
        """Advance to the next ends and begin a simulated cycle.

        Returns the claims that end; None when no end is known.

        Ends that are close together, relative to how far away they are, count as one.
        """
        if not self._due:
            return None
        # Once a job has ended before its time limit, no reservation outlives its cycle: it need not be made now.
        reserved = None if self._early else self.reservation
        self._before = self._now
        if not self._is_ahead:
            # Not before this point: most cycles never simulate the future.
            heapq.heapify(self._due)
            self._is_ahead = True
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
        self._tries.clear()
        self._kept.forget()
        self._ledger_changed()
        # A job that ends before its time limit leaves room for an earlier start.
        goes_on = reserved is not None and not self._early and reserved.at_seconds > self._now
        self._reservations.begin(first=reserved if goes_on else None)
        return gone

    def in_order(self, waiting: Iterable[Candidate]) -> Sequence[Candidate]:
        """The jobs in the order in which the cycle decides on them; between quotas of a tree, by their turns.

        First those for which others have ended: one of these could take its own room again, and end for it once more.
        """
        ordered: Sequence[Candidate] = order(waiting)
        if (loans := self._gate.loans) is not None:
            ordered = in_turn(ordered, loans=loans)
        ordered = self._evictor.with_room_first(ordered)
        if self._reclaim is not None:
            # Not before this point: a decision that changed the turns would not be made again in the next cycle.
            self._reclaim.begin(ordered)
        return ordered

    @property
    def reservation(self) -> Reservation | None:
        """The reservation of the first job that does not fit."""
        return self._reservations.first

    @property
    def now(self) -> float:
        """The simulated time of the cycle, in seconds from its start."""
        return self._now

    @property
    def is_after_windows(self) -> bool:
        """Whether the period of an advance reservation has just ended."""
        return any(self._before < end.at_seconds <= self._now for end in self._windows.ends())

    @property
    def leaving(self) -> list[Leaving]:
        """The expected ends, including those of admitted jobs."""
        return list(self._ends.values())

    def at(self, job: Candidate) -> Verdict:
        """The verdict on the next job in order."""
        if self._reclaim is not None:
            self._reclaim.turn(job)
        verdict = self._at(job) if self._kept_for(job) is not None else self._repeats.judged(job, by=self._at)
        if self._reclaim is not None:
            self._reclaim.settle(job)
        if self._growth is None or self._evictor.preempts_for(job.key):
            # A job that preempts others gets their room: it needs no new nodes.
            return verdict
        verdict, kept = self._growth.at(job, verdict=verdict, ledger=self._ledger, sites=self._sites)
        if kept:
            self._ledger.commit_all(kept)
            self._kept.forget()
            self._ledger_changed()
        return verdict

    def end(self) -> None:
        """Note that all waiting jobs have their verdict. Reserves get back what they lack, in a cycle of now."""
        if self._reclaim is None or self._gate.loans is None:
            return
        if self._windows.wanted and self._evictor.running and not self._now:
            GiveBack(
                reclaim=self._reclaim,
                evictor=self._evictor,
                loans=self._gate.loans,
                ledger=self._ledger,
                sites=self._sites,
                windows=self._windows,
                kept=self._reservations.all(),
                leaving=self.leaving,
            ).run()
        self._reclaim.end()

    def _at(self, job: Candidate) -> Verdict:
        if job.least is None:
            return self._verdict(job)
        fewer, limit = replace(job, workers=self._gate.workers(job)), self._gate.narrows(job)
        verdict = self._verdict(fewer)
        if limit and isinstance(verdict, Admitted) and len(verdict.claims) == fewer.workers:
            return replace(verdict, limit=limit)
        return verdict

    def _verdict(self, job: Candidate) -> Verdict:
        # 0. What others have left for it.
        if isinstance(at_home := self._at_home(job), Admitted):
            return at_home
        # 1. Nominate: room for all workers now, whatever is reserved; or why there is none.
        found = self._room_for(job)
        self._log("1. nominate", job=job, found=found)
        # 2. Limits, for a job that could ever have room: beyond one, what borrowers use of it may come back.
        if isinstance(found, Room) or found.reason != "ExceedsCapacity":
            refused = self._gate.refusal(job)
            self._log("2. limits", job=job, found=refused)
            if refused is not None:
                return self._beyond_limit(job, waits=waits_because(job, why=refused))
        # 3. Reservations: the nominated room stays the job's where no other job is delayed.
        verdict = self._admit(job, room=found) if isinstance(found, Room) else waits_because(job, why=found)
        self._log("3. reservations", job=job, found=verdict)
        # 4. Fall back to the CPU, for a job that no longer waits for busy GPUs.
        if isinstance(verdict, Waits) and falls_back(job.cpu_in_seconds, reason=verdict.reason, now_seconds=self._now):
            self._log("4. fall back to the CPU", job=job, found=verdict)
            return self._on_cpu(job, instead=verdict)
        if isinstance(verdict, Admitted):
            return verdict
        # 5. Reclaim: borrowers end for a job within its guarantee.
        if self._reclaim is not None:
            owner = self._reclaim.owner_or_refusal(job)
            self._log("5. reclaim", job=job, found=owner)
            if isinstance(owner, int):
                return self._reclaimed(job, waits=verdict, owner=owner, reclaim=self._reclaim)
            verdict = with_clause(verdict, clause=owner)
        if isinstance(found, Room) and self.reservation is not None:
            return verdict
        # 6. Preempt jobs of lower priority, or reserve the earliest start.
        self._log("6. preempt or reserve", job=job, found=verdict)
        return self._preempted(job, waits=verdict)

    def _log(self, step: str, *, job: Candidate, found: object) -> None:
        """One line for a step of a job, where the level is debug: a cycle has thousands of steps."""
        if self._logs:
            log.debug(step, job=job.name or job.key, found=verdicts.in_short(found))

    def _beyond_limit(self, job: Candidate, *, waits: Waits) -> Verdict:
        """The verdict on a job that a limit keeps waiting: what borrowers use of it may come back, as room does."""
        owner = None if self._reclaim is None else self._reclaim.owner(job)
        if self._reclaim is None or owner is None:
            return waits
        # The first limit that refuses it, and the first one that counts jobs.
        limit = waits.message, self._gate.refusal(Candidate(key=job.key, ask=_NO_GPUS))
        if not self._reclaim.may_seek(job, owner=owner, limit=limit):
            return waits
        made = self._reclaim.reclaim(
            job,
            owner=owner,
            ledger=self._ledger,
            sites=self._sites,
            residual=self._residual(job, in_seconds=self._reclaim.takes_seconds),
            limit=limit,
            allows=lambda victims: self._gate.allows_without(job, ended=[each.key for each in victims]),
        )
        if made is None:
            return waits
        self._reservations.promised.append(made)
        return msgspec.structs.replace(waits, kept=self._kept_for(job))

    def _reclaimed(self, job: Candidate, *, waits: Waits, owner: int, reclaim: Reclaim) -> Verdict:
        """The verdict on a job within its guarantee that has no room: what comes back for it."""
        if (cleared := self._cleared(job)) is not None:
            return cleared
        residual = self._residual(job, in_seconds=reclaim.takes_seconds)
        made = reclaim.reclaim(job, owner=owner, ledger=self._ledger, sites=self._sites, residual=residual)
        if made is None:
            waits = with_clause(waits, clause=reclaim.refusal_clause(job, owner=owner))
            return self._preempted(job, waits=waits)
        self._reservations.promised.append(made)
        return msgspec.structs.replace(waits, kept=self._kept_for(job))

    def _preempted(self, job: Candidate, *, waits: Waits) -> Verdict:
        """The verdict on a job that waits for room, which may get it by its priority, and a reservation."""
        moved = None
        if self._evictor.running:
            if (cleared := self._cleared(job)) is not None:
                return cleared
            residual = self._residual(job, in_seconds=self._evictor.takes_seconds)
            moved = self._evictor.moved(job, ledger=self._ledger, sites=self._sites, residual=residual)
        if moved is not None:
            self._reservations.promised.append(moved)
            self._repeats.changed()
        elif waits.reason not in _HOPELESS:
            self._reserve(job)
        kept = self._kept_for(job)
        return waits if kept is None else msgspec.structs.replace(waits, kept=kept)

    def _at_home(self, job: Candidate) -> Verdict | None:
        """The verdict on a job for which others have moved, on the nodes that they left; None without such nodes."""
        home = self._evictor.at_home(job)
        if home is None or self._gate.refusal(home) is not None:
            return None
        found = self._room_for(home)
        return self._admit(home, room=found) if isinstance(found, Room) else self._cleared(home)

    def _cleared(self, job: Candidate) -> Verdict | None:
        """The verdict on a job for which others have ended; None where they leave no room, or one still runs."""
        residual = self._residual(job, in_seconds=0.0)
        cleared = self._evictor.cleared(job, ledger=self._ledger, sites=self._sites, residual=residual)
        if cleared is None:
            return None
        self._room_grew()
        return self._admit(job, room=cleared)

    def _room_grew(self) -> None:
        """Clear the rooms and shortages that were computed before a job's victims had left."""
        self._kept.forget()
        self._refused.clear()
        self._refused_before.clear()
        self._ledger_changed()

    def _on_cpu(self, job: Candidate, *, instead: Waits) -> Verdict:
        """Admit all workers without their GPUs, within the limits that count jobs."""
        asked = replace(job, ask=on_cpu(job.ask), others=())
        room = self._room_for(asked)
        refused = room if isinstance(room, Shortage) else self._gate.refusal(asked)
        if refused is not None:
            return waits_because(job, why=refused)
        if self._reservations.drop(job.key):
            self._kept.forget()
        self._gate.started(asked)
        self._repeats.changed()
        return Admitted(key=job.key, ask=asked.ask, on_cpu=instead.message)

    def _room_for(self, job: Candidate) -> Room | Shortage:
        if job.ask.gpu is None:
            return room_without_gpus(job, ledger=self._ledger, sites=self._sites, growth=self._growth)
        shortage = self._refused.get(job.shape) or self._still_refused(job)
        if shortage is not None:
            return shortage
        found = find_room(job, ledger=self._ledger, fit_cache=self._fit_cache, sites=self._sites)
        if isinstance(found, Room):
            return found
        self._refused[job.shape] = found.shortage
        if self._shortages is not None:
            self._shortages.refused[job.shape] = found.shortage
        return found.shortage

    def _reserve(self, job: Candidate) -> None:
        """Reserve the job's earliest start.

        The first job that does not fit gets a reservation; a later one only where it preempts others and does not delay
        the first.
        """
        is_first = not self._reservations.has_first
        if not is_first and not self._may_preempt_too:
            return
        may_try = self._tries.take(job, ends=self._ends)
        if self._shortages is not None:
            self._shortages.hope.update(self._tries.hope)
        if not may_try:
            return
        self._repeats.changed()
        if self._postpones and not self._windows.against(job, start_seconds=self._now):
            # It has a start exactly if all known ends make room for it. What starts meanwhile ends too.
            self._hope[job.shape] = self._tries.has_hope(job, ends=self._ends)
            if self._hope[job.shape]:
                self._reservations.postpone(lambda: self._by_itself(job))
            return
        by_itself = self._by_itself(job)
        residual = self._residual(job, in_seconds=self._evictor.takes_seconds)
        made = self._evictor.preempt(
            job, ledger=self._ledger, sites=self._sites, otherwise=by_itself, residual=residual
        )
        if is_first:
            self._reservations.reserve(made or by_itself)
        else:
            self._reservations.preempting = made

    @property
    def _postpones(self) -> bool:
        """Whether a reservation is made only when a job is compared with it: few simulated cycles have such a job."""
        return self._is_ahead and not self._evictor.running and self._reclaim is None and self._growth is None

    def _by_itself(self, job: Candidate) -> Reservation | None:
        """The job's earliest start where no other job ends for it."""
        ledger, sites, against = self._ledger, self._sites, self._reservations.against(job, start_seconds=self._now)
        return reserve_around(
            job, against=against, ledger=ledger, sites=sites, leaving=self.leaving, now_seconds=self._now
        )

    @property
    def _may_preempt_too(self) -> bool:
        """Whether a later job may preempt too: one a cycle may, and none while others end for the first one."""
        if not self._evictor.rules.gap or self._reservations.preempting is not None:
            return False
        first = self.reservation
        return first is not None and not self._evictor.preempts_for(first.job.key)

    def _residual(self, job: Candidate, *, in_seconds: float) -> Residual | None:
        at, leaving = self._now + in_seconds, self._ends
        return residual_for(
            job, reservations=self._reservations, windows=self._windows, leaving=leaving, start_seconds=at
        )

    def _ledger_changed(self) -> None:
        self._shortages = None
        self._repeats.changed()

    def _kept_for(self, job: Candidate) -> Kept | None:
        reserved = self._reservations.of(job.key)
        if reserved is None:
            return None
        now = kept_now(reserved, ledger=self._ledger, leaving=self.leaving)
        return Kept(at_seconds=reserved.at_seconds, claims=reserved.claims, now=tuple(now))

    def _still_refused(self, job: Candidate) -> Shortage | None:
        """The shortage of the cycle before, where nothing that was freed since then helps."""
        shortage = self._refused_before.get(job.shape)
        if shortage is None or helps(
            job, nodes=self._freed, fit_cache=self._fit_cache, sites=self._sites, ledger=self._ledger
        ):
            return None
        self._refused[job.shape] = shortage
        return shortage

    def _admit(self, job: Candidate, *, room: Room) -> Verdict:
        """The verdict for a job that fits: whether reservations leave it the room."""
        kept: tuple[Reservation, ...] = ()
        for by in self._reservations.against(job, start_seconds=self._now):
            kept = (*kept, by)
            left = self._kept.room(job, kept=kept, leaving=self.leaving)
            if not isinstance(left, Room):
                return kept_back(job, by=by, shortage=left)
            room = left
        return self._admitted(job, room=room)

    def _expect(self, leaving: Iterable[Leaving]) -> None:
        for each in leaving:
            self._ends[each.key] = each
            due = each.expected_seconds, each
            if self._is_ahead:
                heapq.heappush(self._due, due)
            else:
                self._due.append(due)

    def _admitted(self, job: Candidate, *, room: Room) -> Admitted:
        if self._reservations.drop(job.key):
            self._kept.forget()
        is_backfilled = self._reservations.is_backfilled(job, room=room, start_seconds=self._now)
        self._gate.started(job if job.least is None or not room.claims else replace(job, workers=len(room.claims)))
        self._expect(commit(room.claims, job=job, ledger=self._ledger, at_seconds=self._now))
        self._kept.take(room, job=job)
        self._ledger_changed()
        return Admitted(
            key=job.key, claims=room.claims, ask=room.ask, limit_seconds=job.limit_seconds if is_backfilled else None
        )
