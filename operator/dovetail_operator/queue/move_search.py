"""The search for moves on what the operator sees: the running jobs that may move, and the proofs. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from dovetail.pods.disruption_budgets import disruptions_allowed
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.moves import plan as plans
from dovetail.queue.moves.movable import movable_of, pods_to_move
from dovetail.queue.moves.plan import Movable, MovePlan, NoPlan
from dovetail.queue.moves.proof import MovableJobs, Queue, expected_starts, plan_moves
from dovetail_operator.queue.cycle import Cycle, with_those_on_the_way
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs


def plans_for(
    wanted: Sequence[Candidate], *, state: State, cycle: Cycle, left: int, pause: Callable[[], None]
) -> Iterator[MovePlan | NoPlan]:
    """Try moves for each of the waiting jobs, on one view of the cluster. So many jobs are `left` to move this hour."""
    budgets = list(state.store.budgets.values())
    rules = plans.Rules(
        grace_seconds=state.preemption.grace_seconds,
        most_moves=min(plans.Rules().most_moves, left),
        disruptions_allowed=disruptions_allowed(budgets),
    )
    movable = list(_movable(state, cycle=cycle, rules=rules))
    ledger, leaving = with_those_on_the_way(state, cycle=cycle)
    quotas, view = state.store.quotas, state.store.view
    counted, children = counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage), children_of_jobs(state)
    gate = partial(quotas.gate, counted, children=children, capacity=quotas.capacity(view.ledger))
    queue = Queue(
        ledger=ledger,
        sites=cycle.sites,
        waiting=cycle.waiting,
        leaving=leaving,
        windows=windows_of(
            quotas,
            counted=counted,
            view=view,
            ledger=ledger,
            leaving=leaving,
            now=cycle.now,
            gate=gate() if quotas.reserve else None,
        ),
        gate=gate,
    )
    able = MovableJobs(movable, ledger=ledger, rules=rules, pause=pause)
    starts = expected_starts(queue, pause=pause)
    for each in wanted:
        yield plan_moves(each, queue=queue, movable=able, starts=starts, pause=pause)


def _movable(state: State, *, cycle: Cycle, rules: plans.Rules) -> Iterator[Movable]:
    """The running jobs that may move now."""
    budgets, notices = list(state.store.budgets.values()), state.decisions.notices
    for job in state.store.jobs_that_ran.values():
        child = state.store.child_of(job)
        if job.metadata.uid in notices or not state.moves.lets_move(job, now=cycle.now):
            continue
        pods = pods_to_move(
            job,
            child=child,
            pods=state.store.pods.pods_of(child),
            least_seconds=state.preemption.min_run_seconds,
            now=cycle.now,
        )
        if not pods:
            continue
        candidate = Candidacies().candidate(job, state=state, sites=cycle.sites, workers=job.spec.workers)
        if candidate is None:
            continue
        found = movable_of(job, candidate=candidate, pods=pods, budgets=budgets, now=cycle.now)
        if rules.within_budgets([found]):
            yield found
