"""The search for moves on what the operator sees: the running jobs that may move, and the proofs. No I/O."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.jobs.moves import under_way
from dovetail.pods.disruption_budgets import disruptions_allowed
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.model.candidates import Candidate, Leaving, order
from dovetail.queue.model.gate import Gate
from dovetail.queue.moves import plan as plans
from dovetail.queue.moves.movable import movable_of, pods_to_move
from dovetail.queue.moves.plan import Movable, MovePlan, NoPlan
from dovetail.queue.moves.proof import expected_starts, plan_together
from dovetail.queue.moves.search import MovableJobs, Queue
from dovetail.queue.moves.under_way import Moving, with_moves
from dovetail.queue.preemption.victims import Running
from dovetail_operator.queue.cycle import Cycle, running_job, with_those_on_the_way
from dovetail_operator.queue.moving import move_of
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs

# The CPU time in which plans are sought. What all of them share comes before: 1.5 s on 5,000 nodes.
_SEARCH_SECONDS: Final = 1.0


def plans_for(
    wanted: Sequence[Candidate],
    *,
    state: State,
    cycle: Cycle,
    left: int,
    pause: Callable[[], None],
    busy_seconds: Callable[[], float],
) -> dict[str, MovePlan | NoPlan]:
    """Plans for the waiting jobs that hold together, and next to the moves that are under way; by the job's UID.

    So many jobs are `left` to move this hour. `busy_seconds` is the CPU time of the round so far. Jobs for which no
    time is left have no entry.
    """
    ledger, leaving = with_those_on_the_way(state, cycle=cycle)
    ending = _about_to_end(state, cycle=cycle)
    moving = _under_way(ending, cycle=cycle)
    held, after = with_moves(moving, ledger=ledger, sites=cycle.sites)
    gone = {key for each in moving for key in each.claims}
    rules = plans.Rules(
        grace_seconds=state.preemption.grace_seconds,
        moves_left=left,
        disruptions_allowed=_still_allowed(state, ending=ending),
    )
    gate, windows = _limits(state, cycle=cycle, ledger=ledger, leaving=leaving)
    queue = Queue(
        ledger=after,
        sites=cycle.sites,
        # The others start on the room that is held for them, before the queue decides on any other job.
        waiting=[each for each in cycle.waiting if each.key not in cycle.moving or each.key in cycle.lost_moves],
        leaving=[each for each in leaving if each.key not in gone],
        windows=windows,
        gate=gate,
    )
    able = MovableJobs(list(_movable(state, cycle=cycle, rules=rules)), ledger=held, rules=rules, pause=pause)
    starts = expected_starts(queue, pause=pause)
    until = busy_seconds() + _SEARCH_SECONDS
    return plan_together(
        wanted,
        queue=queue,
        movable=able,
        starts=starts,
        pause=pause,
        is_over=lambda: busy_seconds() >= until,
    )


def _limits(
    state: State, *, cycle: Cycle, ledger: Ledger, leaving: Sequence[Leaving]
) -> tuple[Callable[[], Gate | None], Windows]:
    """What makes the limits as they are now, and the advance reservations."""
    quotas, view = state.store.quotas, state.store.view
    counted, children = counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage), children_of_jobs(state)
    gate = partial(quotas.gate, counted, children=children, capacity=quotas.capacity(view.ledger))
    windows = windows_of(
        quotas,
        counted=counted,
        view=view,
        ledger=ledger,
        leaving=leaving,
        now=cycle.now,
        gate=gate() if quotas.reserve else None,
    )
    return gate, windows


def _about_to_end(state: State, *, cycle: Cycle) -> list[Running]:
    """The jobs that end for others or for a drained node, or move, by decisions whose ends may still come."""
    found = list[Running]()
    for key, job in state.store.jobs_that_ran.items():
        if job.metadata.uid in state.decisions.notices or under_way(move_of(job, state=state)):
            running = running_job(state, key=key, job=job, now=cycle.now)
            found += [] if running is None else [running]
    return found


def _under_way(ending: Sequence[Running], *, cycle: Cycle) -> list[Moving]:
    """The plans that are under way, in the order of the queue."""
    claims = dict[str, list[str]]()
    for each in ending:
        if each.moves:
            claims.setdefault(each.yields_to, []).extend(each.claims)
    return [Moving(job=job, claims=tuple(claims[job.key])) for job in order(cycle.waiting) if job.key in claims]


def _still_allowed(state: State, *, ending: Sequence[Running]) -> Mapping[str, int]:
    """How many pods may end, by PodDisruptionBudget, next to those that are about to."""
    allowed = Counter(disruptions_allowed(state.store.budgets.values()))
    for each in ending:
        allowed.subtract(each.covered_pods)
    return {budget: max(0, count) for budget, count in allowed.items()}


def _movable(state: State, *, cycle: Cycle, rules: plans.Rules) -> Iterator[Movable]:
    """The running jobs that may move now."""
    budgets, notices = list(state.store.budgets.values()), state.decisions.notices
    for job in state.store.jobs_that_ran.values():
        child = state.store.child_of(job)
        is_busy = job.metadata.uid in notices or under_way(move_of(job, state=state))
        if is_busy or not state.moves.lets_move(job, now=cycle.now):
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
