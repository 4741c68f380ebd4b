"""The search for moves on a ledger: who would have to leave so that a waiting job has room, and where each would go.

The plans of one moment are sought one after the other on one draft. What one of them takes stays held for the next: the
room of the job that starts, the room elsewhere of those that move, and what these still hold. So no two of them need
the same device.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dovetail.api.reasons import moves as says
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.priced_rows import shape_of
from dovetail.engine.score.priced_term import CapacityMirror
from dovetail.fragmentation.capacity import Bools
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.backfill.reservation import beyond, set_aside
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, find_room
from dovetail.queue.model.gate import Gate
from dovetail.queue.moves.candidates import Candidate as SetOfJobs
from dovetail.queue.moves.candidates import candidates
from dovetail.queue.moves.plan import Movable, NoPlan, Rules
from dovetail.queue.moves.residents import RESTART_SECONDS, Residents
from dovetail.queue.preemption.victims import without_pause

# How many sets of jobs are tried on the ledger for one that waits.
_TRIES: Final = 64
# From so many plans of a moment on, one can take the place of another.
_SEVERAL: Final = 2


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
class Tried:
    """Moves that fit on the ledger, before the queue has judged them: `after` has what each job that moves will hold.

    `room` is what `job` would hold.
    """

    job: Candidate
    room: tuple[Claim, ...]
    movers: tuple[Movable, ...]
    after: Mapping[str, tuple[Claim, ...]]
    lost_device_seconds: float


def refusal(ask: Ask) -> NoPlan | None:
    """Why no job moves for such a request."""
    if ask.gpu is None:
        return NoPlan(why=says.NO_GPU())
    if ask.profile:
        return NoPlan(why=says.INSTANCES(profile=ask.profile))
    if ask.mode == "TimeShared":
        return NoPlan(why=says.TURNS())
    return None


def lost_device_seconds(mover: Movable, *, rules: Rules) -> float:
    """What a restart loses at most: what the job does between two savings, or all that it did, and the restart."""
    return mover.job.gpus * (mover.unsaved_seconds(grace_seconds=rules.grace_seconds) + RESTART_SECONDS)


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
    """The jobs that may move, in columns, and a draft of the ledger: made once for all plans of one moment.

    The ledger is one on which moves that are under way hold both their ends.
    """

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


class Search:
    """The search for the plans of one moment, which hold what they take against each other until `close`."""

    def __init__(self, *, queue: Queue, movable: MovableJobs) -> None:
        self._queue = queue
        self._rules = movable.rules
        self._draft = movable.draft
        self._movable = movable.by_key
        self._residents = movable.residents
        self._mean_mib = movable.mean_mib
        # What is held for each plan, by the key of the job that starts.
        self._held: dict[str, tuple[Tried, list[Claim]]] = {}
        # The nodes that take no job that moves where there is room elsewhere, and all others by site.
        self._to_empty: set[str] = set()
        self._elsewhere: dict[str, list[str]] = {}
        # The sets for a worker of a shape, with the number of plans that were held then.
        self._known: dict[object, tuple[int, list[tuple[str, ...]]]] = {}

    def expect(self, jobs: Sequence[Candidate]) -> None:
        """Note for how many jobs plans are sought: as many of the nodes that are cheapest to empty take no other job.

        A job that moved there would keep the next plan from emptying the node. Where nothing else has room, it does.
        """
        alone = [job for job in jobs if job.workers == 1]
        if len(alone) < _SEVERAL:
            return
        counts = Counter(job.shape for job in alone)
        for job in {job.shape: job for job in alone}.values():
            rows = dict.fromkeys(each.node for each in self._candidates(job))
            self._to_empty.update(self._draft.ledger.names(list(rows)[: counts[job.shape]]))

    def hold(self, tried: Tried) -> None:
        """Hold what a plan takes: the next ones are found next to it."""
        draft, elsewhere = self._draft, [claim for claims in tried.after.values() for claim in claims]
        given = [claim for each in tried.movers for key in each.claims if (claim := draft.ledger.claim(key))]
        held = [*elsewhere, *beyond(tried.room, given=given)]
        draft.ledger.commit_all(held)
        for each in tried.movers:
            self._residents.hide(each.job.key)
        self._held[tried.job.key] = tried, held

    def drop(self, tried: Tried) -> None:
        """Release what a plan holds."""
        _, held = self._held.pop(tried.job.key)
        for claim in held:
            self._draft.ledger.release(claim.key)
        for each in tried.movers:
            self._residents.show(each.job.key)
        self._known.clear()

    def close(self) -> None:
        """Release everything."""
        for tried, _ in list(self._held.values()):
            self.drop(tried)

    def found(self, job: Candidate, *, pause: Callable[[], None]) -> Iterator[Tried]:
        """Moves after which the job and all that move have room, the cheapest first."""
        if job.workers > 1:
            if (tried := self._for_gang(job, pause=pause)) is not None:
                yield tried
            return
        known, sets = self._known.get(job.shape, (-1, []))
        if known >= 0:
            for keys in sets:
                pause()
                if (tried := self._try(job, keys=keys)) is not None:
                    yield tried
        if known < len(self._held):
            tried_before = set(sets)
            sets = self._sets(job)[:_TRIES]
            self._known[job.shape] = len(self._held), sets
            for keys in sets:
                pause()
                if keys not in tried_before and (tried := self._try(job, keys=keys)) is not None:
                    yield tried

    @property
    def is_used_up(self) -> bool:
        """Whether the plans that are held move as many jobs as those of one moment may."""
        return self._most_moves <= 0

    @property
    def _moving(self) -> list[Movable]:
        return [mover for tried, _ in self._held.values() for mover in tried.movers]

    @property
    def _most_moves(self) -> int:
        left = self._rules.moves_left
        return self._rules.most_moves if left is None else min(self._rules.most_moves, left - len(self._moving))

    def _for_gang(self, job: Candidate, *, pause: Callable[[], None]) -> Tried | None:
        """Moves for a job of several workers: for one worker after the other that has no room yet."""
        keys: tuple[str, ...] = ()
        while len(keys) < self._most_moves:
            pause()
            if keys and (tried := self._try(job, keys=keys)) is not None:
                return tried
            more = self._next_for_gang(job, keys=keys, pause=pause)
            if not more:
                return None
            keys = (*keys, *more)
        return self._try(job, keys=keys) if keys else None

    def _next_for_gang(self, job: Candidate, *, keys: tuple[str, ...], pause: Callable[[], None]) -> tuple[str, ...]:
        """The cheapest further jobs to move for the first worker that has no room once those of `keys` have left."""
        draft = self._draft
        with draft.undone() as committed:
            draft.release([claim for key in keys for claim in self._movable[key].claims])
            for worker in range(job.workers):
                pause()
                one = replace(job, key=f"{job.key}/{worker}", workers=1, least=None)
                room = self._room(one)
                if room is None:
                    found = self._sets(one)
                    return next((tuple(key for key in each if key not in keys) for each in found), ())
                draft.commit(room.claims, into=committed)
        return ()

    def _sets(self, job: Candidate) -> list[tuple[str, ...]]:
        """The sets of jobs that would make room for one worker on the ledger as the draft has it."""
        return list(dict.fromkeys(each.keys for each in self._candidates(job)))

    def _candidates(self, job: Candidate) -> Iterator[SetOfJobs]:
        self._draft.mirror.follow()
        most = self._most_moves
        for ask in (job.ask, *job.others):
            if refusal(ask) is None:
                found = candidates(
                    self._shape(ask),
                    columns=self._draft.mirror.columns,
                    residents=self._residents,
                    now=0.0,
                    allowed=self._allowed(job),
                )
                yield from (each for each in found if len(each.keys) <= most)

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

    def _try(self, job: Candidate, *, keys: Sequence[str]) -> Tried | None:
        """The moves of these jobs; None where the waiting job or one of them has no room then."""
        moving = self._moving
        if len(keys) > self._most_moves or {each.job.key for each in moving}.intersection(keys):
            return None
        movers = sorted((self._movable[key] for key in keys), key=lambda each: (-each.job.gpus, each.job.key))
        draft, after = self._draft, dict[str, tuple[Claim, ...]]()
        if not self._rules.within_budgets([*moving, *movers]):
            return None
        with draft.undone() as committed:
            draft.release([claim for each in movers for claim in each.claims])
            room = self._room(job)
            if room is None:
                return None
            draft.commit(room.claims, into=committed)
            for each in movers:
                place = self._place(each.job)
                if place is None:
                    return None
                draft.commit(place.claims, into=committed)
                after[each.job.key] = place.claims
        lost = sum(lost_device_seconds(each, rules=self._rules) for each in movers)
        return Tried(job=job, room=room.claims, movers=tuple(movers), after=after, lost_device_seconds=lost)

    def _place(self, job: Candidate) -> Room | None:
        """The room of a job that moves."""
        if self._to_empty:
            if job.site not in self._elsewhere:
                nodes = self._queue.sites.get(job.site, self._draft.ledger.nodes())
                self._elsewhere[job.site] = [node for node in nodes if node not in self._to_empty]
            if (found := self._room(job, sites=self._elsewhere)) is not None:
                return found
        return self._room(job)

    def _room(self, job: Candidate, *, sites: Sites | None = None) -> Room | None:
        """The room of a job on the draft, outside the advance reservations that it must not touch."""
        ledger, fit_cache = self._draft.ledger, self._draft.fit_cache
        for each in self._queue.windows.against(job):
            ledger = set_aside(each, ledger=ledger, leaving=self._queue.leaving)
            fit_cache = FitCache(ledger)
        sites = self._queue.sites if sites is None else sites
        found = find_room(job, ledger=ledger, fit_cache=fit_cache, sites=sites)
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
