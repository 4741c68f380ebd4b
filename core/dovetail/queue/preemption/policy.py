"""Preemption: which running jobs make way for the first one that waits, where it is proven that it starts. Pure.

The victims are the fewest, then those of the lowest priority, then the youngest. What is decided is not remembered
here: the jobs that were told to make way come in again with the next look, and the proof is made anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate, Room, Sites
from dovetail.queue.preemption.negative_cache import InVain
from dovetail.queue.preemption.victims import Beside, Proof, Proofs, Running

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
class Order:
    """The job `victim` makes way for the job `by`."""

    victim: str
    by: Candidate


@dataclass(slots=True)
class Evictor:
    """Finds victims for one look at the queue; `orders` are what it comes to, those that stood before among them.

    What was sought `in_vain` goes on from look to look.
    """

    running: Sequence[Running]
    rules: Rules
    orders: dict[str, Order] = field(default_factory=dict)
    in_vain: InVain = field(default_factory=InVain)
    _told: dict[str, list[Running]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for each in self.running:
            self._told.setdefault(each.yields_to, []).append(each)

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

    def cleared(self, job: Candidate, *, ledger: Ledger, sites: Sites, beside: Beside | None = None) -> Room | None:
        """The room of a job for which others have made way: they have all left, though their pods may not be gone.

        What they held is released in `ledger` then.
        """
        told = self._told_for(job)
        if not told or not all(each.left for each in told):
            return None
        proof = Proofs(job=job, ledger=ledger, sites=sites, beside=beside).without(told)
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
        beside: Beside | None = None,
    ) -> Reservation | None:
        """What is kept for `job` where others make way for it: those that were told so, or new ones.

        None where nobody may or has to, or where it would start as soon by itself, as `otherwise` says. `beside` tells
        what of a ledger is left to the job; None where that is all of it.
        """
        proofs = Proofs(job=job, ledger=ledger, sites=sites, beside=beside)
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
        return self._told.get(job.key, [])

    def _still(self, proofs: Proofs) -> Proof | None:
        """The proof over those that were told to make way already, without those that need not any more."""
        # A priority may have been changed since they were told.
        told = [each for each in self._told_for(proofs.job) if each.left or self._is_lower(each, proofs.job)]
        if not told or not self.rules.gap or not proofs.job.may_preempt:
            return None
        proof = proofs.without(told)
        return None if proof is None else proofs.spared(proof)

    def _new(self, proofs: Proofs) -> Proof | None:
        if any(each.left for each in self._told_for(proofs.job)):
            # They have made way and something came between: nobody else is sent away for that.
            return None
        willing = self._willing(proofs.job)
        most = min(self.rules.left, len(willing))
        if not most:
            return None
        job, question = proofs.job.key, proofs.question(willing)
        if self.in_vain.knows(job, asks=question, most=most):
            return None
        if replace(proofs, beside=None).without(willing) is None:
            # Then there is none without fewer of them, nor beside anything, whenever that is.
            self.in_vain.note(job, asked=question, most=len(willing))
            return None
        found = proofs.among(willing, most=most)
        if found is None and proofs.beside is None:
            self.in_vain.note(job, asked=question, most=most)
        return found

    def _willing(self, job: Candidate) -> list[Running]:
        """Those that may make way for `job`, the first to go first."""
        rules = self.rules
        if not rules.gap or not job.may_preempt:
            return []
        may = [
            each
            for each in self.running
            if self._is_lower(each, job)
            and each.run_seconds >= rules.min_run_seconds
            and each.preempted < rules.per_job
            and not each.yields_to
            and not each.left
        ]
        return sorted(may, key=lambda each: (each.priority, each.run_seconds, each.key))

    def _is_lower(self, running: Running, job: Candidate) -> bool:
        """Whether the one is less important than the other by far enough."""
        return running.priority + self.rules.gap <= job.priority
