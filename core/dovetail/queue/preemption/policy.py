"""Preemption for the first waiting job, only where it is proven that the job then starts.

Pure.

It picks the fewest victims, then those of the lowest priority, then the youngest. Decisions are not stored here: the
next cycle gets the preempted jobs as input and proves again that they suffice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.engine.ledger.ledger import Ledger
from dovetail.formats.timestamps import moment
from dovetail.pods.disruption_budgets import may_end_together
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate, Room, Sites
from dovetail.queue.preemption import together
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.victims import Proof, Proofs, Residual, Running, without_pause
from dovetail.queue.quota_tree.loans import Loans

# Kubernetes' own grace period, which follows ours.
ENDING_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a job may preempt others.

    - `gap`: by how much its priority must be higher; 0 turns preemption off
    - `min_run_seconds`: how long a job runs before it can be preempted
    - `grace_seconds`: how long a preempted job may continue
    - `per_job`: how often one job can be preempted
    - `left`: how many jobs may still be preempted within this hour
    - `reclaim_grace_seconds`: how long a job may continue that is ended for a guarantee
    - `between_quotas`: whether a job of one quota of the tree may preempt those of another by its priority
    """

    gap: int = 0
    min_run_seconds: float = 300.0
    grace_seconds: float = 30.0
    per_job: int = 3
    left: int = 20
    reclaim_grace_seconds: float = 30.0
    between_quotas: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The job `victim` is preempted for the job `by`.

    `reclaim` is the message of a job that is ended for a guarantee; empty for a preemption by priority. A victim that
    `moves` restarts elsewhere. `grace_seconds` are between the notice and the end of its pods.
    """

    victim: str
    by: Candidate
    grace_seconds: float
    reclaim: str = ""
    moves: bool = False


@dataclass(slots=True)
class Evictor:
    """Finds victims in one scheduling cycle.

    running         the jobs that run now
    rules           who may be preempted, and how many
    orders          its decisions, including those of earlier cycles
    negative_cache  the searches that failed; it outlives the cycle
    pause           is called before each placement of a job, of which a search has many; no decision is half made then
    loans           the use of the tree of quotas, which the cycle sets
    allowed         how many pods may end, by PodDisruptionBudget
    homes           the site of the nodes that others have left for a job by their moves, by its key
    """

    running: Sequence[Running]
    rules: Rules
    orders: dict[str, Order] = field(default_factory=dict)
    negative_cache: NegativeCache = field(default_factory=NegativeCache)
    pause: Callable[[], None] = without_pause
    loans: Loans | None = None
    allowed: Mapping[str, int] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    _victims_by_job: dict[str, list[Running]] = field(default_factory=dict, init=False, repr=False)
    _movers_by_job: dict[str, list[Running]] = field(default_factory=dict, init=False, repr=False)
    _covered: dict[str, Mapping[str, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._covered.update({each.key: each.covered_pods for each in self.running if each.covered_pods})
        for each in self.running:
            if each.yields_to:
                by_job = self._movers_by_job if each.moves else self._victims_by_job
                by_job.setdefault(each.yields_to, []).append(each)

    @property
    def takes_seconds(self) -> float:
        """The seconds that it takes at most until jobs that are preempted now have left."""
        return self.rules.grace_seconds + ENDING_SECONDS

    def preempts_for(self, key: str) -> bool:
        """Whether jobs are preempted for a waiting job."""
        return any(order.by.key == key for order in self.orders.values())

    def preemption_clause(self, key: str) -> Sentence:
        """The end of a waiting job's message: how many jobs are preempted for it. Empty if none is."""
        own = [order for order in self.orders.values() if order.by.key == key]
        if not own:
            return NOTHING
        clause = says.ENDED_FOR_IT if any(order.reclaim for order in own) else says.PREEMPTED_FOR_IT
        if all(order.moves for order in own):
            clause = says.MOVES_FOR_IT
        return clause(count=len(own))

    def cleared(self, job: Candidate, *, ledger: Ledger, sites: Sites, residual: Residual | None = None) -> Room | None:
        """The room of a job whose victims have all stopped, even if their pods still exist.

        Releases the victims' claims in `ledger`. None while a victim still runs, or where the room does not suffice.
        """
        if not self.has_room_of_others(job):
            return None
        victims = self._all_that_end_for(job)
        proof = Proofs(job=job, ledger=ledger, sites=sites, residual=residual, pause=self.pause).without(victims)
        if proof is None:
            return None
        for victim in victims:
            for key in victim.claims:
                ledger.release(key)
        return proof.room

    def preempt(
        self,
        job: Candidate,
        *,
        ledger: Ledger,
        sites: Sites,
        otherwise: Reservation | None,
        residual: Residual | None = None,
    ) -> Reservation | None:
        """The reservation of `job` after the preemption of its current victims, or of new ones.

        None where no job may be preempted, or where the job would start as soon without it, as `otherwise` says.
        `residual` gives what reservations leave of a ledger to the job; None where they leave all of it.
        """
        choose = partial(self._together, job=job) if self._crosses_quotas or self._covered else None
        proofs = Proofs(job=job, ledger=ledger, sites=sites, residual=residual, together=choose, pause=self.pause)
        proof = self._still(proofs)
        if proof is None:
            if otherwise is not None and otherwise.at_seconds <= self.takes_seconds:
                return None
            proof = self._new(proofs)
        if proof is None:
            return None
        grace_seconds = self.rules.grace_seconds
        self.orders.update(
            {
                each.key: Order(victim=each.key, by=job, grace_seconds=grace_seconds)
                for each in proof.victims
                if not each.left
            }
        )
        if self.loans is not None:
            for each in proof.victims:
                self.loans.end(each.key)
            self.loans.start(job.key, workers=len(proof.room.claims) or None)
        return Reservation(job=job, at_seconds=self.takes_seconds, claims=proof.room.claims)

    @property
    def have_victims(self) -> Collection[str]:
        """The keys of the jobs that others end for, by the decisions of earlier cycles."""
        return self._victims_by_job

    @property
    def served(self) -> AbstractSet[str]:
        """The keys of the jobs that others end or move for."""
        return self._victims_by_job.keys() | self._movers_by_job.keys()

    def has_room_of_others(self, job: Candidate) -> bool:
        """Whether jobs have ended for this one, and none still runs that is to."""
        victims = self._all_that_end_for(job)
        return bool(victims) and all(each.left for each in victims)

    def with_room_first(self, ordered: Sequence[Candidate]) -> Sequence[Candidate]:
        """The jobs in their order, but first those for which others have ended."""
        if not self.served or not any(self.has_room_of_others(job) for job in ordered):
            return ordered
        return sorted(ordered, key=lambda job: not self.has_room_of_others(job))

    def at_home(self, job: Candidate) -> Candidate | None:
        """A job for which others have moved, on the nodes that they left alone; None for any other job.

        Of several plans that are under way, the job of one would take what the moves of another have freed.
        """
        site = self.homes.get(job.key)
        return None if site is None or not self.has_room_of_others(job) else replace(job, site=site)

    def current_victims(self, job: Candidate) -> list[Running]:
        """The jobs that end for this one, by the decisions of earlier cycles; without those that move."""
        return self._victims_by_job.get(job.key, [])

    def _all_that_end_for(self, job: Candidate) -> list[Running]:
        return [*self.current_victims(job), *self._movers_by_job.get(job.key, ())]

    def moved(
        self, job: Candidate, *, ledger: Ledger, sites: Sites, residual: Residual | None = None
    ) -> Reservation | None:
        """The reservation of a job for which others move, once these have left, by the plan of an earlier cycle.

        None where no job moves for it, or where it has no room after these moves: then they are given up. `residual` is
        that of `preempt`.
        """
        movers = self._movers_by_job.get(job.key, [])
        if not any(not each.left for each in movers):
            return None
        proofs = Proofs(job=job, ledger=ledger, sites=sites, residual=residual, pause=self.pause)
        if len(self.within_budgets(movers)) < len(movers) or (proof := proofs.without(movers)) is None:
            return None
        proof = proofs.reprieved(proof)
        self.orders.update(
            {
                each.key: Order(victim=each.key, by=job, grace_seconds=self.rules.grace_seconds, moves=True)
                for each in proof.victims
                if not each.left
            }
        )
        if self.loans is not None:
            # Those that move keep their own place in the limits.
            self.loans.start(job.key, workers=len(proof.room.claims) or None)
        return Reservation(job=job, at_seconds=self.takes_seconds, claims=proof.room.claims)

    def _still(self, proofs: Proofs) -> Proof | None:
        """The proof with the current victims, without those that are no longer necessary."""
        # A priority may have changed since the decision.
        victims = [
            each for each in self.current_victims(proofs.job) if each.left or self._is_lower(each, job=proofs.job)
        ]
        if not victims or not self.rules.gap or not proofs.job.may_preempt:
            return None
        victims = self.within_budgets(victims)
        if self._crosses_quotas and self.loans is not None:
            victims = self._that_still_may(victims, job=proofs.job, loans=self.loans)
        proof = proofs.without(victims)
        return None if proof is None else proofs.reprieved(proof)

    def _that_still_may(self, victims: Sequence[Running], *, job: Candidate, loans: Loans) -> list[Running]:
        """Those of the victims by earlier decisions that leave their quotas their guarantees, or have left."""
        going = [each for each in victims if not each.left]
        for each in going:
            # Their use counts while it is tested whether they still are beyond a guarantee.
            loans.start(each.key)
        may = {each.key for each in self._together(going, job=job)}
        for each in going:
            loans.end(each.key)
        return [each for each in victims if each.left or each.key in may]

    @property
    def _crosses_quotas(self) -> bool:
        """Whether victims may be of other quotas, which keep their guarantees."""
        return self.loans is not None and self.rules.between_quotas

    def _together(self, victims: Sequence[Running], *, job: Candidate) -> Sequence[Running]:
        """Those of the victims that may end together, the first ones first.

        PodDisruptionBudgets are kept, and between quotas their guarantees.
        """
        victims = self.within_budgets(victims)
        if self.loans is None or not self._crosses_quotas:
            return victims
        with together.without(victims, loans=self.loans, may_end=partial(self._may_lose, job=job)) as ended:
            return list(ended)

    def within_budgets(self, victims: Sequence[Running]) -> list[Running]:
        """Those of the victims whose ends break no PodDisruptionBudget, the first ones first.

        Ends that are decided for other jobs count before; what has left no longer counts.
        """
        if not self._covered:
            return list(victims)
        own = {each.key for each in victims}
        before = [self._covered[key] for key in self.orders if key in self._covered and key not in own]
        covered = [*before, *({} if each.left else each.covered_pods for each in victims)]
        may = may_end_together(covered, allowed=self.allowed)
        return [victims[at - len(before)] for at in may if at >= len(before)]

    def _budgets_of(self, potential_victims: Sequence[Running]) -> tuple[object, ...]:
        """What decides which of them may end together by their PodDisruptionBudgets; empty where none has one."""
        covered = tuple(tuple(sorted(each.covered_pods.items())) for each in potential_victims)
        return (covered, tuple(sorted(self.allowed.items()))) if any(covered) else ()

    def _may_lose(self, victim: Running, *, job: Candidate) -> bool:
        loans = self.loans
        return loans is None or loans.may_lose(victim.key, to=job.key, others=self.rules.between_quotas)

    def _new(self, proofs: Proofs) -> Proof | None:
        if any(each.left for each in self.current_victims(proofs.job)):
            # The victims have left, and something else took the room: do not preempt more jobs for that.
            return None
        potential_victims = self._potential_victims(proofs.job)
        most = min(self.rules.left, len(potential_victims))
        if not most:
            return None
        job, loans = proofs.job.key, self.loans if self._crosses_quotas else None
        guarantees = () if loans is None else together.guarantees_of(potential_victims, loans=loans, job=job)
        question = proofs.question(potential_victims, guarantees=(*guarantees, *self._budgets_of(potential_victims)))
        if self.negative_cache.knows(job, asks=lambda: question, most=most):
            return None
        if replace(proofs, residual=None).without(potential_victims) is None:
            # Then no subset of them suffices either, with or without reservations.
            self.negative_cache.record(job, asked=question, most=len(potential_victims))
            return None
        found = proofs.among(potential_victims, most=most)
        if found is None and proofs.residual is None:
            self.negative_cache.record(job, asked=question, most=most)
        return found

    def _potential_victims(self, job: Candidate) -> list[Running]:
        """The jobs that may be preempted for `job`, the first to go first."""
        rules = self.rules
        if not rules.gap or not job.may_preempt:
            return []
        may = [
            each
            for each in self.running
            if self._is_lower(each, job=job)
            and each.run_seconds >= rules.min_run_seconds
            and each.preempted < rules.per_job
            and not each.yields_to
            and not each.left
            and each.preemptible
            and each.key not in self.orders
            and self._may_lose(each, job=job)
            and self.within_budgets([each])
        ]
        return sorted(may, key=lambda each: (each.priority, each.run_seconds, each.key))

    def _is_lower(self, running: Running, *, job: Candidate) -> bool:
        """Whether the priority of the running job is lower by at least `gap`."""
        return running.priority + self.rules.gap <= job.priority


_HOUR: Final = timedelta(hours=1)


def rules_now(rules: Rules, *, jobs: Iterable[GPUJob], now: datetime) -> Rules:
    """The rules with `left` reduced by the preemptions of the last hour. `jobs` are all that run or have run."""
    return replace(rules, left=max(0, rules.left - _spent(jobs, now=now))) if rules.gap else rules


def _spent(jobs: Iterable[GPUJob], *, now: datetime) -> int:
    """The number of jobs that were preempted within the last hour, or are being preempted."""
    known = [job.status.preemption for job in jobs if job.status.preemption is not None]
    recent = sum(each.last_time is not None and moment(each.last_time) > now - _HOUR for each in known)
    return recent + sum(each.at is not None for each in known)
