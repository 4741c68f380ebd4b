"""Reclaim: a quota below its guarantee gets GPUs back from borrowers, where it is proven that its job then starts.

Pure. Decisions are not stored here: the next cycle gets the ended jobs as input and proves again that they suffice.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.reasons import queue as says
from dovetail.api.reasons.capacity import COLON
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.end import RECLAIMED
from dovetail.engine.ledger.ledger import Ledger
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate, Sites
from dovetail.queue.preemption.cheapest_victims import Choice
from dovetail.queue.preemption.negative_cache import Question, SearchTurns
from dovetail.queue.preemption.policy import ENDING_SECONDS, Evictor, Order
from dovetail.queue.preemption.together import guarantees_of
from dovetail.queue.preemption.victims import Proof, Proofs, Residual, Running
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.resources import GPUS, MEMORY, amount_text, bare_text

# New searches for victims in one cycle, and as many for jobs at a limit. Further owners have their turn in later ones.
_SEARCHES: Final = 16

# Of the time within which a job leaves for a reserve, for the cycle and the writes, and for times of whole seconds.
_WRITING_SECONDS: Final = 2.0

# What jobs have in common whose searches fail alike: their shape, their owner, and what else keeps them waiting.
_Key = tuple[object, int, Hashable]


class Reclaim:
    """Gets guarantees back in one scheduling cycle. The cycle keeps `loans` current.

    The jobs that may end, and the decisions, are those of the `evictor`.
    """

    def __init__(self, evictor: Evictor, *, loans: Loans) -> None:
        self._evictor = evictor
        self._loans = loans
        self._charge_of = loans.charges.get
        turns = evictor.negative_cache.turns, evictor.negative_cache.turns_at_limits
        self._searches, self._searches_at_limits = (_Searches(each) for each in turns)
        # Why no search of a shape for an owner found victims, in this cycle. The third part is None, or what keeps the
        # job waiting besides room: that is no reason for jobs of the same shape that nothing else keeps waiting.
        self._refused: dict[_Key, Sentence] = {}
        # The reservation without which such a search would have found some.
        self._kept_back: dict[_Key, Reservation] = {}
        # The jobs that are counted although they wait: others end for them, and their turn has not come.
        self._expected: set[str] = set()
        # The reasons of `owner_or_refusal` since the loans last changed, by shape and the identity of the charge:
        # thousands of waiting jobs have the same.
        self._settled: dict[tuple[object, int], Sentence] = {}
        self._settled_at = -1
        # Why no running job may end for jobs of a quota within the guarantee of an owner, of the same time: whatever
        # the jobs request.
        self._nobody: dict[tuple[int | None, int], Sentence] = {}
        self._by_quota: dict[int | None, list[Running]] | None = None
        # The jobs that may end for each owner, while neither the loans nor the decisions change.
        self._potential_victims_of: dict[int, list[Running]] = {}
        self._potential_victims_at = (-1, -1)
        for each in evictor.running:
            if each.left:
                # Its pods end, so its quota no longer uses what they hold.
                loans.end(each.key)

    def begin(self, waiting: Iterable[Candidate]) -> None:
        """Uncount the jobs that are about to end for waiting ones, and count these until their turn.

        A quota above both keeps its use, so that a job whose turn is earlier gets back what it would get without them.
        Those stay counted whose notice will be withdrawn, because nothing waits for their room or their quota needs
        them for its guarantee. Without them, other jobs of their quota would seem to be within that guarantee. Those
        that end for a higher priority count until the turn of that job: it may take their place in the same quota.
        """
        for job in waiting:
            if job.key in self._evictor.have_victims:
                owner = self.owner(job)
                for each in self._evictor.current_victims(job):
                    if not each.left and owner is not None and self._may_end(each, job=job, owner=owner):
                        self._loans.end(each.key)
                        self._expected.add(job.key)
                if job.key in self._expected:
                    self._loans.start(job.key, workers=job.least)

    def turn(self, job: Candidate) -> None:
        """Uncount the job itself. Call it before the job's verdict."""
        if job.key in self._expected:
            self._expected.discard(job.key)
            self._loans.end(job.key)

    def settle(self, job: Candidate) -> None:
        """Count again the jobs that were to end for this one and now continue. Call it after the job's verdict."""
        for each in self._evictor.current_victims(job):
            if not each.left and each.key not in self._evictor.orders:
                self._loans.start(each.key)

    @property
    def takes_seconds(self) -> float:
        """The seconds that it takes at most until jobs that are ended now have left."""
        return self._evictor.rules.reclaim_grace_seconds + ENDING_SECONDS

    def owner(self, job: Candidate) -> int | None:
        """The quota whose guarantee covers the job, with its fewest workers at least; None where none does."""
        found = self._loans.owner(job.key, workers=job.workers)
        if found is None and job.least:
            found = self._loans.owner(job.key, workers=job.least)
        return None if job.ask.gpu is None else found

    def may_seek(self, job: Candidate, *, owner: int, limit: Hashable = None) -> bool:
        """Whether jobs end for this one already, or no job of its shape has failed to get any back in this cycle.

        `limit` says what keeps the job waiting besides room, if anything does.
        """
        refused = (job.shape, owner, None) in self._refused or (
            limit is not None and self._key(job, owner=owner, limit=limit) in self._refused
        )
        return not refused or bool(self._evictor.current_victims(job))

    def _key(self, job: Candidate, *, owner: int, limit: Hashable) -> _Key:
        """What jobs have in common whose searches fail alike."""
        # Jobs with the same charge belong to the same user, so the same limits of quotas bind them.
        return job.shape, owner, None if limit is None else (id(self._charge_of(job.key)), limit)

    def owner_or_refusal(self, job: Candidate) -> int | Sentence:
        """The quota whose guarantee covers the job, where jobs may end for it; else why nothing comes back.

        The reason is the end of the job's message, empty for a job that no guarantee covers.
        """
        # Each look asks for thousands of jobs.
        charge = self._charge_of(job.key)
        key = job.shape, id(charge)
        if self._settled_at == self._loans.changes:
            settled = self._settled.get(key)
            if settled is not None and job.key not in self._evictor.have_victims:
                return settled
        else:
            self._settled.clear()
            self._nobody.clear()
            self._settled_at = self._loans.changes
        owner = self.owner(job)
        if owner is not None and charge is not None and (charge.quota, owner) in self._nobody:
            self._refused.setdefault((job.shape, owner, None), self._nobody[charge.quota, owner])
        if owner is not None and self.may_seek(job, owner=owner):
            return owner
        clause = NOTHING if owner is None else self.refusal_clause(job, owner=owner)
        if job.least is None:
            # Elastic jobs of one shape may differ in the workers that their limits leave them.
            self._settled[key] = clause
        return clause

    def reclaim(
        self,
        job: Candidate,
        *,
        owner: int,
        ledger: Ledger,
        sites: Sites,
        residual: Residual | None,
        limit: Hashable = None,
        allows: Callable[[Sequence[Running]], bool] | None = None,
        message: str = "",
    ) -> Reservation | None:
        """The room that the job gets by the end of borrowers' jobs; None where none of them can give it.

        `allows` says whether the limits of quotas above it let the job start without some jobs; None where they do
        anyway. `limit` says then what they refuse now. `message` is for those that end, instead of the usual one.
        """
        proofs = Proofs(
            job=job, ledger=ledger, sites=sites, residual=residual, allows=allows, pause=self._evictor.pause
        )
        kept = self._kept(job, owner=owner)
        key = self._key(job, owner=owner, limit=limit)
        proof = self._still(proofs, kept=kept, owner=owner) or self._new(proofs, kept=kept, owner=owner, key=key)
        if proof is None:
            return None
        message = message or self._message(job, owner=owner)
        for each in proof.victims:
            self._loans.end(each.key)
            if not each.left:
                self._evictor.orders[each.key] = Order(
                    victim=each.key, by=job, reclaim=message, grace_seconds=self._grace_seconds(each, owner=owner)
                )
        self._loans.start(job.key, workers=len(proof.room.claims) or None)
        return Reservation(job=job, at_seconds=self.takes_seconds, claims=proof.room.claims)

    def refusal_clause(self, job: Candidate, *, owner: int) -> Sentence:
        """The end of the message of a job for which nothing comes back: why; empty where nothing was sought."""
        key = job.shape, owner, None
        kept = self._kept_back.get(key)
        refused = self._refused.get(key, NOTHING)
        # The job waits for the reason that it has: what is kept says only why nothing comes back.
        return refused if kept is None else (refused + COLON() + kept.words_for(job)).with_reason("")

    def _message(self, job: Candidate, *, owner: int) -> str:
        quota, guaranteed = self._guarantee(owner)
        return RECLAIMED(quota=quota, guaranteed=guaranteed, gpus=float(job.gpus)).message

    def _grace_seconds(self, victim: Running, *, owner: int) -> float:
        """The notice of a job that ends for a quota. With a reserve, its pods end within the time of that."""
        usual, charge = self._evictor.rules.reclaim_grace_seconds, self._charge_of(victim.key)
        reserve = self._loans.tree.nodes[owner].reserve
        if reserve is None or charge is None or charge.leave_seconds is None:
            return usual
        left = reserve.leave_within_seconds - charge.leave_seconds
        return usual if left < 0 else min(usual, max(0.0, left - _WRITING_SECONDS))

    def _in_time(self, potential_victims: Sequence[Running], *, owner: int) -> list[Running]:
        """Those whose pods end within the time that the quota's reserve allows; all of them without a reserve."""
        reserve = self._loans.tree.nodes[owner].reserve
        if reserve is None:
            return list(potential_victims)
        found = []
        for each in potential_victims:
            charge = self._charge_of(each.key)
            ends = None if charge is None else charge.leave_seconds
            if ends is not None and ends <= reserve.leave_within_seconds:
                found.append(each)
        return found

    def _guarantee(self, owner: int) -> tuple[str, str]:
        """The quota, and what it is guaranteed and uses in words."""
        tree, used = self._loans.tree, self._loans.used(owner)
        said = [
            f"{amount_text(bound, of=of)}, uses {bare_text(amount, of=of)}"
            for of, bound, amount in zip(tree.resources, tree.nodes[owner].guaranteed, used, strict=True)
            if bound is not None and of in {GPUS, MEMORY}
        ]
        return tree.nodes[owner].name, " and ".join(said)

    def _kept(self, job: Candidate, *, owner: int) -> list[Running]:
        """The jobs that end for this one by the decisions of earlier cycles, and still may."""
        victims = self._evictor.within_budgets(self._evictor.current_victims(job))
        for each in victims:
            # Their use counts while it is tested whether they still borrow.
            if not each.left:
                self._loans.start(each.key)
        kept = []
        for each in victims:
            if each.left or self._may_end(each, job=job, owner=owner):
                self._loans.end(each.key)
                kept.append(each)
        return kept

    def _still(self, proofs: Proofs, *, kept: Sequence[Running], owner: int) -> Proof | None:
        """The proof with the jobs that already end for this one, without those that are no longer necessary."""
        proof = proofs.without(kept) if kept else None
        return None if proof is None else self._choice(proofs, owner=owner, potential_victims=kept).reprieved(proof)

    def _new(self, proofs: Proofs, *, kept: Sequence[Running], owner: int, key: _Key) -> Proof | None:
        """A proof with further jobs of borrowers, in addition to those that already end for this one.

        Other jobs instead would leave the job without both: some of the first ones may have left already.
        """
        if key in self._refused:
            return None
        potential_victims, found = self._potential_victims(proofs.job, owner=owner), None
        if potential_victims:
            with proofs.ledger.without(key for each in kept for key in each.claims):
                found = self._search(
                    _in_addition(proofs, to=kept), key=key, owner=owner, potential_victims=potential_victims
                )
        else:
            clause = self._refused[key] = self._why_nothing(proofs.job, owner=owner, potential_victims=())
            charge = self._charge_of(proofs.job.key)
            if charge is not None and self._settled_at == self._loans.changes:
                self._nobody[charge.quota, owner] = clause
        if found is None:
            return None
        if not kept:
            return found
        both = replace(found, victims=(*kept, *found.victims))
        return self._choice(proofs, owner=owner, potential_victims=both.victims).reprieved(both)

    def _choice(self, proofs: Proofs, *, owner: int, potential_victims: Sequence[Running]) -> Choice:
        return Choice(proofs=proofs, loans=self._loans, owner=owner, potential_victims=potential_victims)

    def _search(self, proofs: Proofs, *, key: _Key, owner: int, potential_victims: Sequence[Running]) -> Proof | None:
        """The cheapest proof; None where there is none, or where the job has its turn in another cycle."""
        job, negative = proofs.job, self._evictor.negative_cache
        lasting = proofs.residual is None and proofs.allows is None

        def question() -> Question:
            guarantees = guarantees_of(potential_victims, loans=self._loans, job=job.key)
            return proofs.question(potential_victims, guarantees=(owner, *guarantees))

        known = lasting and negative.knows(job.key, asks=question, most=len(potential_victims))
        searches = self._searches if proofs.allows is None else self._searches_at_limits
        if not known and not searches.take(job.key):
            # The message stays what the last search found.
            has_failed = searches.turns.has_failed(job.key)
            self._refused[key] = (
                self._why_nothing(job, owner=owner, potential_victims=potential_victims) if has_failed else NOTHING
            )
            self._note_kept(key, by=searches.turns.kept_back(job.key))
            return None
        found = None
        if not known:
            if proofs.without(potential_victims) is not None:
                found = self._cheapest(proofs, owner=owner, potential_victims=potential_victims)
            if found is not None:
                return found
            kept = proofs.kept_back(potential_victims)
            self._note_kept(key, by=kept)
            searches.turns.failed(job.key, kept=kept)
            if lasting:
                negative.record(job.key, asked=question(), most=len(potential_victims))
        self._refused[key] = self._why_nothing(job, owner=owner, potential_victims=potential_victims)
        return None

    def _cheapest(self, proofs: Proofs, *, owner: int, potential_victims: Sequence[Running]) -> Proof | None:
        """The cheapest proof, with those that leave in time for a reserve where these suffice."""
        quick = self._in_time(potential_victims, owner=owner)
        if len(quick) < len(potential_victims) and proofs.without(quick) is not None:
            found = self._choice(proofs, owner=owner, potential_victims=quick).cheapest()
            if found is not None:
                return found
        return self._choice(proofs, owner=owner, potential_victims=potential_victims).cheapest()

    def _note_kept(self, key: _Key, *, by: Reservation | None) -> None:
        if by is not None:
            self._kept_back[key] = by

    def end(self) -> None:
        """Note that all waiting jobs have their verdict."""
        for each in (self._searches, self._searches_at_limits):
            each.turns.end_cycle(missed=each.missed, skipped=each.skipped)

    def _potential_victims(self, job: Candidate, *, owner: int) -> list[Running]:
        """The jobs of borrowers that may end for this job, each by itself: the same for all jobs of an owner."""
        at = self._loans.changes, len(self._evictor.orders)
        if self._potential_victims_at != at:
            self._potential_victims_at = at
            self._potential_victims_of.clear()
        if owner not in self._potential_victims_of:
            found = [
                each
                for quota, several in self._candidates().items()
                if self._loans.borrows(quota)
                for each in several
                if each.key not in self._evictor.orders and self._may_end(each, job=job, owner=owner)
            ]
            # All of them may end together, so each choice among them may.
            self._potential_victims_of[owner] = self._evictor.within_budgets(found)
        return self._potential_victims_of[owner]

    def _candidates(self) -> dict[int | None, list[Running]]:
        """The running jobs that may be preempted at all, by their quota."""
        if self._by_quota is None:
            self._by_quota = {}
            for each in self._evictor.running:
                charge = self._loans.charge(each.key)
                if charge is not None and each.preemptible and not each.left and not each.yields_to:
                    self._by_quota.setdefault(charge.quota, []).append(each)
        return self._by_quota

    def _may_end(self, each: Running, *, job: Candidate, owner: int) -> bool:
        return each.preemptible and self._loans.gives_back(each.key, to=job.key, owner=owner)

    def _why_nothing(self, job: Candidate, *, owner: int, potential_victims: Sequence[Running]) -> Sentence:
        quota, guaranteed = self._guarantee(owner)
        found = says.GUARANTEED(quota=quota, guaranteed=guaranteed) + says.NOTHING_BACK()
        if potential_victims:
            lent = amount_text(sum(self._milli(each) for each in potential_victims), of=GPUS)
            asked = amount_text(round(job.gpus * WHOLE_MILLI), of=GPUS)
            return found + says.TOO_LITTLE_LENT(lent=lent, asked=asked)
        firm = sum(self._milli(each) for each in self._evictor.running if not each.preemptible and not each.left)
        kept = says.FIRM(amount=amount_text(firm, of=GPUS)) if firm else NOTHING
        return found + says.NO_BORROWER() + kept

    def _milli(self, each: Running) -> int:
        charge = self._loans.charge(each.key)
        return 0 if charge is None else charge.milli


def _in_addition(proofs: Proofs, *, to: Sequence[Running]) -> Proofs:
    """The same question where some jobs end anyway: the limits do not count them."""
    allows = proofs.allows
    return proofs if allows is None or not to else replace(proofs, allows=lambda victims: allows((*to, *victims)))


@dataclass(slots=True)
class _Searches:
    """The searches of one cycle that find no victims or new ones.

    - `turns`: whose turn it is, over many cycles
    - `left`: how many more the cycle has time for
    - `missed`: whether a job could not search for lack of time
    - `skipped`: whether a job did not search because it was not its turn
    """

    turns: SearchTurns
    left: int = _SEARCHES
    missed: bool = False
    skipped: bool = False

    def take(self, job: str) -> bool:
        """Whether the job may search now."""
        if not self.turns.may_search(job):
            self.skipped = True
            return False
        if not self.left:
            self.missed = True
            return False
        self.left -= 1
        return True
