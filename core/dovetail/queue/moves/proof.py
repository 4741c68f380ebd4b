"""The proof of a plan of moves, on the ledger and the queue of one moment.

1. Sets of running jobs that would make room for the waiting job, from `candidates`, the cheapest first.
2. Each is tried on a copy of the ledger: the jobs leave, the waiting job is placed, then each of them again.
3. What the job gains must exceed what the moves lose.
4. The queue's own cycle decides on the result. It must start the job, within all limits and reservations, and by
   expected run times no other waiting job starts later than without the moves.

Nothing ends before all of this holds. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.priced_rows import shape_of
from dovetail.engine.score.priced_term import CapacityMirror
from dovetail.fragmentation.capacity import Bools
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.backfill.reservation import set_aside
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.estimates.simulation import FORESEEN_JOBS, play
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, find_room
from dovetail.queue.model.gate import Gate
from dovetail.queue.moves.candidates import candidates
from dovetail.queue.moves.plan import Movable, Move, MovePlan, NoPlan, Rules
from dovetail.queue.moves.residents import RESTART_SECONDS, Residents
from dovetail.queue.preemption.policy import ENDING_SECONDS
from dovetail.queue.preemption.victims import without_pause
from dovetail.queue.verdicts import Admitted, Verdict, Waits

# How many candidates are tried on the ledger, and how many of those that fit there are put to the queue.
_TRIES: Final = 64
_PROOFS: Final = 4
_NOT_MOVED: Final = "no set of jobs that may move makes room for it"


def _no_gate() -> Gate | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The queue at one moment. Nothing here is changed.

    - `ledger`, `sites`: what is promised, and the nodes of each site
    - `waiting`: all jobs that wait
    - `leaving`: the expected ends of what is promised
    - `windows`: the advance reservations
    - `gate`: makes the limits as they are now
    """

    ledger: Ledger
    sites: Sites = field(default_factory=dict)
    waiting: Sequence[Candidate] = ()
    leaving: Sequence[Leaving] = ()
    windows: Windows = field(default_factory=Windows)
    gate: Callable[[], Gate | None] = _no_gate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Moves that fit on the ledger, before the queue has judged them."""

    movers: tuple[Movable, ...]
    after: Mapping[str, tuple[Claim, ...]]
    lost_device_seconds: float


def plan_moves(
    job: Candidate,
    *,
    queue: Queue,
    movable: "MovableJobs",
    starts: Mapping[str, float] | None = None,
    pause: Callable[[], None] = without_pause,
) -> MovePlan | NoPlan:
    """The cheapest moves that are proven to start a waiting job; or why there are none.

    `movable` has been made of the queue's ledger. `starts` are the `expected_starts` of the queue, if they are known
    already. `pause` is called between the parts of a long search.
    """
    if (refusal := _refusal(job.ask)) is not None:
        return refusal
    before = expected_starts(queue, pause=pause) if starts is None else starts
    if before.get(job.key) == 0.0:
        return NoPlan(reason="it starts without moves")
    problem, proofs, gain = NoPlan(reason=_NOT_MOVED), 0, _gain(job, otherwise=before.get(job.key), rules=movable.rules)
    for tried in _Search(job, queue=queue, movable=movable).found(pause=pause):
        if tried.lost_device_seconds >= gain - movable.rules.least_gain:
            # The next ones cost more.
            lost = tried.lost_device_seconds
            return NoPlan(reason=f"the moves would lose {lost:.0f} device-seconds and gain {gain:.0f}")
        proven = _proven(job, tried=tried, before=before, queue=queue, rules=movable.rules, pause=pause)
        if isinstance(proven, MovePlan):
            return proven
        problem, proofs = proven, proofs + 1
        if proofs == _PROOFS:
            break
    return problem


def _refusal(ask: Ask) -> NoPlan | None:
    """Why no job moves for such a request."""
    if ask.gpu is None:
        return NoPlan(reason="it requests no GPU, and moves free GPUs")
    if ask.profile:
        return NoPlan(reason=f"it requests MIG instances ({ask.profile}), and moves free whole GPUs and shares")
    if ask.mode == "TimeShared":
        return NoPlan(reason="it takes turns (TimeShared), and moves free GPUs that it would not have alone")
    return None


def expected_starts(queue: Queue, *, pause: Callable[[], None] = without_pause) -> dict[str, float]:
    """When the first waiting jobs start, in seconds, by expected ends; 0 for those that start now."""
    return _starts(queue, ledger=queue.ledger, leaving=queue.leaving, until=float("inf"), pause=pause)


def _starts(
    queue: Queue, *, ledger: Ledger, leaving: Sequence[Leaving], until: float, pause: Callable[[], None]
) -> dict[str, float]:
    """The same on another ledger; only starts `until` then are of interest, in seconds."""
    look = SchedulingCycle(ledger.copy(), sites=queue.sites, leaving=leaving, gate=queue.gate(), windows=queue.windows)
    starts, pending = dict[str, float](), list[Candidate]()
    for each in look.in_order(queue.waiting):
        pause()
        if isinstance(look.at(each), Admitted):
            starts[each.key] = 0.0
        else:
            pending.append(each)
        if len(pending) == FORESEEN_JOBS:
            break
    for start in play(pending, look=look):
        pause()
        if look.now > until:
            break
        if start is not None:
            starts[start.key] = start.in_seconds
    return starts


def _proven(
    job: Candidate,
    *,
    tried: _Tried,
    before: Mapping[str, float],
    queue: Queue,
    rules: Rules,
    pause: Callable[[], None],
) -> MovePlan | NoPlan:
    """The plan, if the queue starts the job on the ledger after the moves and no other job starts later."""
    ledger, leaving = _after(tried, queue=queue, rules=rules)
    look = SchedulingCycle(ledger.copy(), sites=queue.sites, leaving=leaving, gate=queue.gate(), windows=queue.windows)
    verdict: Verdict | None = None
    for each in look.in_order(queue.waiting):
        found = look.at(each)
        if each.key == job.key:
            verdict = found
            break
    assert verdict is not None, "the job waits"
    if isinstance(verdict, Waits):
        return NoPlan(reason=f"the queue would not start it after the moves: {verdict.message}")
    others = [key for key in before if key != job.key]
    until = max((before[key] for key in others), default=0.0)
    after = _starts(queue, ledger=ledger, leaving=leaving, until=until, pause=pause) if others else {}
    if any(after.get(key, float("inf")) > before[key] for key in others):
        return NoPlan(reason="the moves that make room for it would delay the start of another job")
    return MovePlan(
        starts=job,
        claims=verdict.claims,
        in_seconds=_start_seconds(rules),
        otherwise_seconds=before.get(job.key),
        moves=tuple(_moves(tried, queue=queue, rules=rules)),
        lost_device_seconds=tried.lost_device_seconds,
        gained_device_seconds=_gain(job, otherwise=before.get(job.key), rules=rules),
        compared=len(others),
    )


def _start_seconds(rules: Rules) -> float:
    """When the job starts by a plan, at most: once the last of those that move has ended."""
    return rules.grace_seconds + ENDING_SECONDS


def _gain(job: Candidate, *, otherwise: float | None, rules: Rules) -> float:
    """The device-seconds that the job uses before it would start without moves."""
    runs = job.run_seconds if job.likely_seconds is None else job.likely_seconds
    earlier = runs if otherwise is None else min(runs, max(0.0, otherwise - _start_seconds(rules)))
    return job.gpus * earlier


def _moves(tried: _Tried, *, queue: Queue, rules: Rules) -> Iterator[Move]:
    for each in tried.movers:
        yield Move(
            mover=each,
            held=tuple(claim for key in each.claims if (claim := queue.ledger.claim(key)) is not None),
            claims=tried.after[each.job.key],
            lost_device_seconds=lost_device_seconds(each, rules=rules),
            away_seconds=ENDING_SECONDS + RESTART_SECONDS,
        )


def lost_device_seconds(mover: Movable, *, rules: Rules) -> float:
    """What a restart loses at most: what the job does between two savings, or all that it did, and the restart."""
    return mover.job.gpus * (mover.unsaved_seconds(grace_seconds=rules.grace_seconds) + RESTART_SECONDS)


def _after(tried: _Tried, *, queue: Queue, rules: Rules) -> tuple[Ledger, list[Leaving]]:
    """The ledger after the moves, and the expected ends there: those of the jobs that moved are later."""
    ledger, later = queue.ledger.copy(), dict[str, list[Leaving]]()
    gone = {key: each for each in tried.movers for key in each.claims}
    for key in gone:
        ledger.release(key)
    leaving = list[Leaving]()
    for end in queue.leaving:
        (later.setdefault(end.job, []) if end.key in gone else leaving).append(end)
    for each in tried.movers:
        claims = tried.after[each.job.key]
        ledger.commit_all(claims)
        if ends := later.get(each.job.key):
            unsaved = each.unsaved_seconds(grace_seconds=rules.grace_seconds)
            delay = unsaved + ENDING_SECONDS + RESTART_SECONDS
            leaving += [_later(max(ends), key=claim.key, by_seconds=delay) for claim in claims]
    return ledger, leaving


def _later(end: Leaving, *, key: str, by_seconds: float) -> Leaving:
    return msgspec.structs.replace(
        end,
        key=key,
        at_seconds=end.at_seconds + by_seconds,
        likely_seconds=None if end.likely_seconds is None else end.likely_seconds + by_seconds,
        likely_range=None if end.likely_range is None else tuple(each + by_seconds for each in end.likely_range),
    )


class _Draft:
    """A copy of a ledger with one cache of fits, whose changes can be undone."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger.copy()
        self.fit_cache = FitCache(self.ledger)
        self.mirror = CapacityMirror(self.ledger)

    @contextmanager
    def undone(self) -> Iterator[list[Claim]]:
        """Inside the `with` block, claims may be released and those of the list are committed; then neither is."""
        released, committed = list[Claim](), list[Claim]()
        self._released = released
        try:
            yield committed
        finally:
            for claim in committed:
                self.ledger.release(claim.key)
            self.ledger.commit_all(released)

    def release(self, keys: Sequence[str]) -> None:
        """Release claims until the block of `undone` ends."""
        for key in keys:
            claim = self.ledger.release(key)
            if claim is not None:
                self._released.append(claim)

    def commit(self, claims: Sequence[Claim], *, into: list[Claim]) -> None:
        """Commit claims until the block of `undone` ends."""
        self.ledger.commit_all(claims)
        into += claims


class MovableJobs:
    """The jobs that may move, in columns, and a draft of the ledger: made once for all plans of one moment."""

    def __init__(
        self,
        movable: Sequence[Movable],
        *,
        ledger: Ledger,
        rules: Rules | None = None,
        pause: Callable[[], None] = without_pause,
    ) -> None:
        self.rules = rules or Rules()
        self.by_key = {each.job.key: each for each in movable}
        self.draft = _Draft(ledger)
        self.draft.mirror.follow()
        self.mean_mib = _mean_device_mib(ledger)
        self.residents = Residents(width=self.draft.mirror.columns.left.shape[1])
        slots: dict[str, dict[str, tuple[int, int]]] = {}
        for key, each in self.by_key.items():
            pause()
            claims = [claim for one in each.claims if (claim := ledger.claim(one)) is not None]
            parts = [_part(claim, ledger=ledger, slots=slots) for claim in claims]
            is_known = len(parts) == len(each.claims) and all(part is not None for part in parts)
            # A job without GPUs would seem to lose nothing, because losses are of devices.
            if is_known and each.job.ask.gpu is not None:
                unsaved = each.unsaved_seconds(grace_seconds=self.rules.grace_seconds)
                self.residents.add(key, parts=[part for part in parts if part is not None], started=-unsaved)


class _Search:
    """The search for moves that fit on the ledger."""

    def __init__(self, job: Candidate, *, queue: Queue, movable: MovableJobs) -> None:
        self._job = job
        self._queue = queue
        self._rules = movable.rules
        self._draft = movable.draft
        self._movable = movable.by_key
        self._residents = movable.residents
        self._mean_mib = movable.mean_mib

    def found(self, *, pause: Callable[[], None]) -> Iterator[_Tried]:
        """Moves after which the job and all that move have room, the cheapest first."""
        if self._job.workers > 1:
            if (tried := self._for_gang(pause=pause)) is not None:
                yield tried
            return
        for keys in self._sets(self._job)[:_TRIES]:
            pause()
            tried = self._try(keys)
            if tried is not None:
                yield tried

    def _for_gang(self, *, pause: Callable[[], None]) -> _Tried | None:
        """Moves for a job of several workers: for one worker after the other that has no room yet."""
        keys: tuple[str, ...] = ()
        while len(keys) < self._rules.most_moves:
            pause()
            if keys and (tried := self._try(keys)) is not None:
                return tried
            more = self._next_for_gang(keys)
            if not more:
                return None
            keys = (*keys, *more)
        return self._try(keys) if keys else None

    def _next_for_gang(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """The cheapest further jobs to move for the first worker that has no room once those of `keys` have left."""
        draft = self._draft
        with draft.undone() as committed:
            draft.release([claim for key in keys for claim in self._movable[key].claims])
            for worker in range(self._job.workers):
                one = replace(self._job, key=f"{self._job.key}/{worker}", workers=1, least=None)
                room = self._room(one)
                if room is None:
                    found = self._sets(one)
                    return next((tuple(key for key in each if key not in keys) for each in found), ())
                draft.commit(room.claims, into=committed)
        return ()

    def _sets(self, job: Candidate) -> list[tuple[str, ...]]:
        """The sets of jobs that would make room for one worker on the ledger as the draft has it."""
        self._draft.mirror.follow()
        found = dict[tuple[str, ...], None]()
        for ask in (job.ask, *job.others):
            if _refusal(ask) is None:
                each = candidates(
                    self._shape(ask),
                    columns=self._draft.mirror.columns,
                    residents=self._residents,
                    now=0.0,
                    allowed=self._allowed(job),
                )
                found |= dict.fromkeys(one.keys for one in each if len(one.keys) <= self._rules.most_moves)
        return list(found)

    def _shape(self, ask: Ask) -> Shape:
        return shape_of(ask, memory_mib=self._mean_mib)

    def _allowed(self, job: Candidate) -> Bools | None:
        """Which rows the job may use, [N]; None for all."""
        if job.site not in self._queue.sites:
            return None
        allowed = np.zeros(len(self._draft.mirror.columns), dtype=np.bool_)
        rows = self._queue.ledger.rows(self._queue.sites[job.site])
        allowed[rows[rows >= 0]] = True
        return allowed

    def _try(self, keys: Sequence[str]) -> _Tried | None:
        """The moves of these jobs; None where the waiting job or one of them has no room then."""
        movers = sorted((self._movable[key] for key in keys), key=lambda each: (-each.job.gpus, each.job.key))
        draft, after = self._draft, dict[str, tuple[Claim, ...]]()
        if not self._rules.within_budgets(movers):
            return None
        with draft.undone() as committed:
            draft.release([claim for each in movers for claim in each.claims])
            room = self._room(self._job)
            if room is None:
                return None
            draft.commit(room.claims, into=committed)
            for each in movers:
                place = self._room(each.job)
                if place is None:
                    return None
                draft.commit(place.claims, into=committed)
                after[each.job.key] = place.claims
        lost = sum(lost_device_seconds(each, rules=self._rules) for each in movers)
        return _Tried(movers=tuple(movers), after=after, lost_device_seconds=lost)

    def _room(self, job: Candidate) -> Room | None:
        """The room of a job on the draft, outside the advance reservations that it must not touch."""
        ledger, fit_cache = self._draft.ledger, self._draft.fit_cache
        for each in self._queue.windows.against(job):
            ledger = set_aside(each, ledger=ledger, leaving=self._queue.leaving)
            fit_cache = FitCache(ledger)
        found = find_room(job, ledger=ledger, fit_cache=fit_cache, sites=self._queue.sites)
        return found if isinstance(found, Room) else None


def _part(claim: Claim, *, ledger: Ledger, slots: dict[str, dict[str, tuple[int, int]]]) -> Choice | None:
    """Where a claim is in the columns; None where its devices have no name yet, take turns, or are MIG instances."""
    if claim.picked or claim.mode == "TimeShared" or any(device.mig for device in claim.devices):
        return None
    if claim.node not in slots:
        devices = enumerate(ledger.devices(claim.node))
        slots[claim.node] = {device.uuid: (slot, device.memory_mib) for slot, device in devices}
    there = slots[claim.node]
    if any(device.uuid not in there for device in claim.devices):
        return None
    share = max(
        (
            _milli(device.share_milli, mib=device.memory_mib, of_mib=there[device.uuid][1], mode=claim.mode)
            for device in claim.devices
        ),
        default=0,
    )
    return Choice(
        shape=Shape(cpu_milli=claim.cpu_milli, memory_mib=claim.memory_mib, gpus=len(claim.devices), share_milli=share),
        node=int(ledger.rows([claim.node])[0]),
        devices=tuple(there[device.uuid][0] for device in claim.devices),
    )


def _milli(share_milli: int, *, mib: int, of_mib: int, mode: str) -> int:
    """What a tenant takes of a device in the columns: its share or its part of the memory, whichever is more."""
    if mode == "Exclusive":
        return WHOLE_MILLI
    return min(WHOLE_MILLI, max(share_milli, -(-mib * WHOLE_MILLI // max(1, of_mib))))


def _mean_device_mib(ledger: Ledger) -> int:
    sizes = [device.memory_mib for node in ledger.nodes() for device in ledger.devices(node)]
    return sum(sizes) // len(sizes) if sizes else 0
