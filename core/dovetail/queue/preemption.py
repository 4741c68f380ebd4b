"""Preemption: which running jobs make way for the first one that waits, where it is proven that it starts. Pure.

The victims are the fewest, then those of the lowest priority, then the youngest. What is decided is not remembered
here: the jobs that were told to make way come in again with the next look, and the proof is made anew.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations, islice
from typing import Final

from dovetail.engine.ledger import Ledger
from dovetail.engine.shapes import Shapes
from dovetail.queue.candidates import Candidate, NoRoom, Room, Sites, find_room
from dovetail.queue.reservation import Reservation
from dovetail.requests import WHOLE_MILLI

# The ledger as it is left to the job that is looked at, beside what is kept for others.
Beside = Callable[[Ledger], Ledger]

# Sets of victims that are tried one by one, so many at most; beyond that victims are added until it fits, and spared
# again where it fits without them.
_SETS: Final = 64
# On so many nodes it is tried then whether fewer have to go.
_NODES: Final = 32
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


def _alone(ledger: Ledger) -> Ledger:
    return ledger


@dataclass(slots=True)
class Evictor:
    """Finds victims for one look at the queue; `orders` are what it comes to, those that stood before among them."""

    running: Sequence[Running]
    rules: Rules
    orders: dict[str, Order] = field(default_factory=dict)

    @property
    def takes_seconds(self) -> float:
        """How long it takes at most until those have left who are told to now."""
        return self.rules.grace_seconds + ENDING_SECONDS

    def making_way_for(self, key: str) -> str:
        """What the waiting job is told of those that make way for it; empty where nobody does."""
        count = sum(order.by.key == key for order in self.orders.values())
        if not count:
            return ""
        return f"; {count} job{'s' if count > 1 else ''} of lower priority make{'' if count > 1 else 's'} way for it"

    def cleared(self, job: Candidate, *, ledger: Ledger, sites: Sites, beside: Beside = _alone) -> Room | None:
        """The room of a job for which others have made way: they have all left, though their pods may not be gone.

        What they held is released in `ledger` then.
        """
        told = self._told_for(job)
        if not told or not all(each.left for each in told):
            return None
        proof = _Proofs(job=job, ledger=ledger, sites=sites, beside=beside).without(told)
        if proof is None:
            return None
        for victim in told:
            for key in victim.claims:
                ledger.release(key)
        return proof.room

    def make_way(
        self,
        job: Candidate,
        *,
        ledger: Ledger,
        sites: Sites,
        otherwise: Reservation | None,
        beside: Beside = _alone,
    ) -> Reservation | None:
        """What is kept for `job` where others make way for it: those that were told so, or new ones.

        None where nobody may or has to, or where it would start as soon by itself, as `otherwise` says. `beside` tells
        what of a ledger is left to the job.
        """
        proofs = _Proofs(job=job, ledger=ledger, sites=sites, beside=beside)
        proof = self._still(proofs)
        if proof is None:
            if otherwise is not None and otherwise.at_seconds <= self.takes_seconds:
                return None
            proof = self._new(proofs)
        if proof is None:
            return None
        self.orders.update({each.key: Order(victim=each.key, by=job) for each in proof.victims if not each.left})
        return Reservation(job=job, at_seconds=self.takes_seconds, claims=proof.room.claims)

    def _told_for(self, job: Candidate) -> list[Running]:
        return [each for each in self.running if each.yields_to == job.key]

    def _still(self, proofs: "_Proofs") -> _Proof | None:
        """The proof over those that were told to make way already, without those that need not any more."""
        told = self._told_for(proofs.job)
        if not told or not self.rules.gap:
            return None
        proof = proofs.without(told)
        return None if proof is None else proofs.spared(proof)

    def _new(self, proofs: "_Proofs") -> _Proof | None:
        if any(each.left for each in self._told_for(proofs.job)):
            # They have made way and something came between: nobody else is sent away for that.
            return None
        willing = self._willing(proofs.job)
        most = min(self.rules.left, len(willing))
        if not most or proofs.without(willing) is None:
            return None
        for victims in _sets(willing, most=most):
            proof = proofs.without(victims)
            if proof is not None:
                return proof
        found = proofs.fewest(willing)
        return found if found is not None and len(found.victims) <= most else None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proofs:
    """Tries who has to leave so that one job has room. The ledger is as before when a method returns."""

    job: Candidate
    ledger: Ledger
    sites: Sites
    beside: Beside

    def without(self, victims: Sequence[Running], *, nodes: Sequence[str] | None = None) -> _Proof | None:
        """The room of the job once the victims have left, on `nodes` where these are named."""
        sites = self.sites if nodes is None else {self.job.site: nodes}
        with self.ledger.aside(key for each in victims for key in each.claims):
            left = self.beside(self.ledger)
            found = find_room(self.job, ledger=left, shapes=Shapes(left), sites=sites)
        return None if isinstance(found, NoRoom) else _Proof(victims=tuple(victims), room=found)

    def spared(self, proof: _Proof, *, nodes: Sequence[str] | None = None) -> _Proof:
        """The proof without those victims, the last to go first, without whom there is room as well."""
        for victim in reversed(proof.victims):
            if victim.left:
                continue
            others = [each for each in proof.victims if each is not victim]
            proof = self.without(others, nodes=nodes) or proof
        return proof

    def fewest(self, willing: Sequence[Running]) -> _Proof | None:
        """The fewest of many for whom not every set can be tried; None where it takes more than are worth a try.

        They are added one by one until it fits, in their order and the largest first, for one worker node by node;
        then those are spared without whom it fits as well.
        """
        by_size = sorted(willing, key=lambda each: -self._milli(each))
        if self.job.workers == 1:
            found = self._on_one_node(by_size)
        else:
            found = [proof for each in (willing, by_size) if (proof := self._by_adding(each)) is not None]
        return min(found, key=lambda proof: _cost(proof.victims), default=None)

    def _by_adding(self, ordered: Sequence[Running], *, nodes: Sequence[str] | None = None) -> _Proof | None:
        low, high = 1, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if self.without(ordered[:middle], nodes=nodes) is None:
                low = middle + 1
            else:
                high = middle
        proof = self.without(ordered[:low], nodes=nodes)
        return None if proof is None else self.spared(proof, nodes=nodes)

    def _on_one_node(self, ordered: Sequence[Running]) -> list[_Proof]:
        """A proof for each of the likeliest nodes that the job may go to and that some of them are on."""
        there: dict[str, list[Running]] = {}
        for each in ordered:
            for node in {claim.node for key in each.claims if (claim := self.ledger.claim(key)) is not None}:
                there.setdefault(node, []).append(each)
        allowed = self.sites.get(self.job.site)
        if allowed is not None:
            there = {node: there[node] for node in allowed if node in there}
        likely = sorted(there, key=lambda node: _cost(self._at_least(there[node])))
        # Beside what is kept for others a try costs more than without: that alone rules most nodes out.
        bare = replace(self, beside=_alone)
        able = (node for node in likely if bare.without(there[node], nodes=[node]) is not None)
        tried = (self._by_adding(there[node], nodes=[node]) for node in islice(able, _NODES))
        return [proof for proof in tried if proof is not None]

    def _at_least(self, ordered: Sequence[Running]) -> Sequence[Running]:
        """Those of them that have to leave where nothing is free beside them."""
        wanted = 0 if self.job.ask.gpu is None else self.job.ask.gpu.total_milli
        left = accumulate(self._milli(each) for each in ordered)
        enough = next((count for count, milli in enumerate(left, start=1) if milli >= wanted), len(ordered))
        return ordered[:enough]

    def _milli(self, victim: Running) -> int:
        claims = [claim for key in victim.claims if (claim := self.ledger.claim(key)) is not None]
        return sum(device.share_milli for claim in claims for device in claim.devices) + sum(
            WHOLE_MILLI * claim.unnamed for claim in claims
        )


def _cost(victims: Sequence[Running]) -> tuple[int, list[tuple[int, float, str]]]:
    """The fewest first, then those of the lowest priority, then the youngest."""
    return len(victims), sorted((each.priority, each.run_seconds, each.key) for each in victims)
