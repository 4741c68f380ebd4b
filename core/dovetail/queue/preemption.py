"""Preemption: which running jobs make way for the first one that waits, where it is proven that it starts. Pure.

The victims are the fewest, then those of the lowest priority, then the youngest. What is decided is not remembered
here: the jobs that were told to make way come in again with the next look, and the proof is made anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from dovetail.engine.claims import Claim
from dovetail.engine.ledger import Ledger
from dovetail.engine.shapes import Shapes
from dovetail.queue.candidates import Candidate, NoRoom, Room, Sites, find_room
from dovetail.queue.reservation import Reservation

# Sets of victims that are tried one by one, so many at most; beyond that victims are added until it fits, and spared
# again where it fits without them.
_SETS: Final = 64
# Kubernetes' own grace period, which follows on ours.
ENDING_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a job may take the place of others; `gap` 0 means never. `left` jobs may still be told to make way now."""

    gap: int = 0
    min_run_seconds: float = 300.0
    grace_seconds: float = 30.0
    per_job: int = 3
    left: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job that runs, or that made way and whose pods are not all gone. `claims` are keys of the ledger.

    `yields_to` is the key of the job that it was told to make way for; it has `left` once it does not run any more.
    """

    key: str
    priority: int
    run_seconds: float
    claims: tuple[str, ...]
    preempted: int = 0
    yields_to: str = ""
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The job `victim` makes way for the job `by`."""

    victim: str
    by: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    victims: tuple[Running, ...]
    room: Room


@dataclass(slots=True)
class Evictor:
    """Finds victims for one look at the queue; `orders` are what it comes to, those that stood before among them."""

    running: Sequence[Running]
    rules: Rules
    orders: dict[str, Order] = field(default_factory=dict)

    def making_way_for(self, key: str) -> str:
        """What the waiting job is told of those that make way for it; empty where nobody does."""
        count = sum(order.by.key == key for order in self.orders.values())
        if not count:
            return ""
        return f"; {count} job{'s' if count > 1 else ''} of lower priority make{'' if count > 1 else 's'} way for it"

    def cleared(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> Room | None:
        """The room of a job for which others have made way: they have all left, though their pods may not be gone.

        What they held is released in `ledger` then.
        """
        told = self._told_for(job)
        if not told or not all(each.left for each in told):
            return None
        proof = _proven(job, told, ledger=ledger, sites=sites)
        if proof is None:
            return None
        for victim in told:
            for key in victim.claims:
                ledger.release(key)
        return proof.room

    def make_way(
        self, job: Candidate, *, ledger: Ledger, sites: Sites, otherwise: Reservation | None
    ) -> Reservation | None:
        """What is kept for `job` where others make way for it: those that were told so, or new ones.

        None where nobody may or has to, or where it would start as soon by itself, as `otherwise` says.
        """
        proof = self._still(job, ledger=ledger, sites=sites)
        if proof is None:
            at = self.rules.grace_seconds + ENDING_SECONDS
            if otherwise is not None and otherwise.at_seconds <= at:
                return None
            proof = self._new(job, ledger=ledger, sites=sites)
        if proof is None:
            return None
        self.orders.update({each.key: Order(victim=each.key, by=job) for each in proof.victims if not each.left})
        at = self.rules.grace_seconds + ENDING_SECONDS
        return Reservation(job=job, at_seconds=at, claims=proof.room.claims)

    def _told_for(self, job: Candidate) -> list[Running]:
        return [each for each in self.running if each.yields_to == job.key]

    def _still(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> _Proof | None:
        """The proof over those that were told to make way already, without those that need not any more."""
        told = self._told_for(job)
        if not told or not self.rules.gap:
            return None
        proof = _proven(job, told, ledger=ledger, sites=sites)
        return None if proof is None else _spared(job, proof, ledger=ledger, sites=sites)

    def _new(self, job: Candidate, *, ledger: Ledger, sites: Sites) -> _Proof | None:
        if any(each.left for each in self._told_for(job)):
            # They have made way and something came between: nobody else is sent away for that.
            return None
        willing = self._willing(job)
        if not willing or _proven(job, willing, ledger=ledger, sites=sites) is None:
            return None
        most = min(self.rules.left, len(willing))
        for victims in _sets(willing, most=most):
            proof = _proven(job, victims, ledger=ledger, sites=sites)
            if proof is not None:
                return proof
        return self._by_adding(job, willing, most=most, ledger=ledger, sites=sites)

    def _willing(self, job: Candidate) -> list[Running]:
        """Those that may make way for `job`, the first to go first."""
        rules = self.rules
        if not rules.gap:
            return []
        may = [
            each
            for each in self.running
            if each.priority + rules.gap <= job.priority
            and each.run_seconds >= rules.min_run_seconds
            and each.preempted < rules.per_job
            and not each.yields_to
            and not each.left
        ]
        return sorted(may, key=lambda each: (each.priority, each.run_seconds, each.key))

    def _by_adding(
        self, job: Candidate, willing: Sequence[Running], *, most: int, ledger: Ledger, sites: Sites
    ) -> _Proof | None:
        """Victims added one by one until it fits; then those are spared without whom it fits as well."""
        low, high = 1, len(willing)
        while low < high:
            middle = (low + high) // 2
            if _proven(job, willing[:middle], ledger=ledger, sites=sites) is None:
                low = middle + 1
            else:
                high = middle
        proof = _proven(job, willing[:low], ledger=ledger, sites=sites)
        if proof is None:
            return None
        proof = _spared(job, proof, ledger=ledger, sites=sites)
        return proof if len(proof.victims) <= most else None


def _sets(willing: Sequence[Running], *, most: int) -> Iterator[tuple[Running, ...]]:
    """Sets of victims, small ones first, up to a number of them; a size is tried whole or not at all."""
    left = _SETS
    for size in range(1, most + 1):
        found = list(_up_to(combinations(willing, size), left + 1))
        if len(found) > left:
            return
        yield from found
        left -= len(found)


def _up_to(sets: Iterable[tuple[Running, ...]], count: int) -> Iterator[tuple[Running, ...]]:
    for _, each in zip(range(count), sets, strict=False):
        yield each


def _spared(job: Candidate, proof: _Proof, *, ledger: Ledger, sites: Sites) -> _Proof:
    """The proof without those victims, the last to go first, without whom there is room as well."""
    for victim in reversed(proof.victims):
        if victim.left:
            continue
        others = [each for each in proof.victims if each is not victim]
        found = _proven(job, others, ledger=ledger, sites=sites)
        proof = found or proof
    return proof


def _proven(job: Candidate, victims: Sequence[Running], *, ledger: Ledger, sites: Sites) -> _Proof | None:
    """The room of `job` once the victims have left; the ledger is as before when this returns."""
    gone: list[Claim] = [claim for each in victims for key in each.claims if (claim := ledger.release(key)) is not None]
    try:
        found = find_room(job, ledger=ledger, shapes=Shapes(ledger), sites=sites)
    finally:
        for claim in gone:
            ledger.commit(claim)
    return None if isinstance(found, NoRoom) else _Proof(victims=tuple(victims), room=found)
