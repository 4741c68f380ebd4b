"""Moves: plans for waiting jobs, in parallel to the cycles, and the decisions to begin and to give up.

1. A round tries moves for the jobs that a person has requested them for, then, by the rules, for those that have waited
   long enough; those for which it has no time come first in the next one. It proves a plan on a copy of what the last
   survey saw (`dovetail.queue.moves`).
2. A plan that is carried out is a decision for each job that moves. Its status then has the room elsewhere.
3. Each cycle proves again that the waiting job starts by these moves. Otherwise they are given up.

Several plans may be under way: those of a round are proven together, and next to those of earlier rounds, which hold
both ends of their moves. How many is for the budget of moves to say.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJob, Move
from dovetail.api.meta import find_condition, key_of
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import Sentence
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_on_the_way
from dovetail.jobs.moves import is_requested, under_way
from dovetail.kube.retry_log import log_failure
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.moves.plan import MovePlan, NoPlan
from dovetail.queue.verdicts import Admitted, Kept, Waits
from dovetail_operator.job.plan import reserved_room
from dovetail_operator.metrics import Counters
from dovetail_operator.queue.cycle import Cycle, survey
from dovetail_operator.queue.cycle_caches import CycleCaches
from dovetail_operator.queue.moving import move_of
from dovetail_operator.queue.time_slices import SLICE_SECONDS, Pausable, TimeSlices
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State

# The share of time that plans may take, and the least time between two rounds.
_SHARE: Final = 0.1
_PAUSE_SECONDS: Final = 2.0
# How soon a cycle looks at a move that is under way again.
_CHECK_SECONDS: Final = 1.0


class Moves:
    """Begins moves and gives them up. `changed` marks a job as changed by its key."""

    def __init__(
        self,
        state: State,
        *,
        caches: CycleCaches,
        counters: Counters,
        changed: Callable[[str], None],
        wake_up: WakeUp,
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._caches = caches
        self._counters = counters
        self._changed = changed
        self._wake_up = wake_up
        self._now = now
        self._due = asyncio.Event()
        # The UIDs of the jobs for which the last round had no time. The searches for others may take all of it.
        self._left: frozenset[str] = frozenset()

    def update(self, cycle: Cycle) -> None:
        """Follow up a cycle: give up the moves that start no job any more, and plan others if jobs wait."""
        decisions, is_any = self._state.decisions, False
        for key, job in self._state.store.jobs_that_ran.items():
            uid, wanted = job.metadata.uid, decisions.moves.get(job.metadata.uid)
            if wanted is not None and wanted == job.status.move:
                decisions.forget_move(uid)
            is_any = is_any or under_way(self._move_of(job))
            if uid in cycle.moving and (given_up := self._given_up(job, cycle=cycle)) is not None:
                decisions.set_move(uid, move=given_up)
                self._changed(key)
        if is_any:
            self._wake_up.within(seconds=_CHECK_SECONDS)
        if cycle.waiting:
            self._due.set()

    def _given_up(self, job: GPUJob, *, cycle: Cycle) -> Move | None:
        """The job's move as its status is to show it now; None where it goes on."""
        uid, move = job.metadata.uid, self._move_of(job)
        if move is None or move.reserved is None:
            return None
        nodes = ", ".join(each.name for each in move.reserved.nodes)
        if uid in cycle.lost_moves:
            move = msgspec.structs.replace(move, reserved=None, message=f"The room that was held on {nodes} is lost")
        if not is_on_the_way(job, child=self._state.store.child_of(job)):
            return move if uid in cycle.lost_moves else None
        if uid in cycle.orders and uid not in cycle.lost_moves:
            return None
        message = move.message or "The job for which it was to move no longer starts by that"
        return msgspec.structs.replace(move, by="", reserved=None, message=message)

    async def run(self) -> None:
        """Plan moves after cycles, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            slices = TimeSlices(rest_seconds=SLICE_SECONDS)
            try:
                await self._round(slices)
            except Exception as error:  # noqa: BLE001 - plans may be late, the queue must go on
                log_failure("moves are planned again", error=error, wait=_PAUSE_SECONDS)
                self._due.set()
            await asyncio.sleep(max(_PAUSE_SECONDS, slices.busy_seconds / _SHARE))

    async def _round(self, slices: TimeSlices) -> None:
        """Plan moves for some waiting jobs, and begin those that are to be carried out."""
        state, now = self._state, self._now()
        if not self._may_be_wanted():
            state.decisions.set_move_clauses({})
            return
        cycle = survey(state, now=now, foresees=True, caches=self._caches)
        wanted = self._wanted(cycle)
        pausable = Pausable[dict[str, MovePlan | NoPlan]](slices)
        items = self._plans(wanted, cycle=cycle, pause=pausable.pause, slices=slices)
        async with aclosing(pausable.over(items)) as made:
            found = [each async for each in made]
        plans, clauses = found[0] if found else {}, dict[str, Sentence]()
        self._left = frozenset(each.candidate.key for each in wanted) - plans.keys()
        for each in wanted:
            if (plan := plans.get(each.candidate.key)) is None:
                clauses[each.candidate.key] = state.decisions.move_clause(each.candidate.key)
                continue
            begins = isinstance(plan, MovePlan) and each.applies and self._begin(plan)
            self._count(plan, begins=begins)
            if not begins and (isinstance(plan, MovePlan) or each.requested):
                clauses[each.candidate.key] = _clause(plan)
        state.decisions.set_move_clauses(clauses)
        self._wake_up.soon()

    def _may_be_wanted(self) -> bool:
        """Whether moves happen on need, or are requested. Most clusters do without, and pay nothing."""
        now = self._now()
        return self._state.moves.mode != "Off" or any(
            is_requested(job, now=now) for job in self._state.store.jobs.values()
        )

    def _wanted(self, cycle: Cycle) -> list["_Wanted"]:
        """The waiting jobs of a round: those with a request, then those that have waited long enough.

        Those for which the last round had no time come before the others.
        """
        rules, asked, others = self._state.moves, list[_Wanted](), list[_Wanted]()
        served = {move.by for job in self._state.store.jobs_that_ran.values() if (move := self._move_of(job))}
        for candidate in order(cycle.waiting):
            job = self._state.store.jobs.get(cycle.keys[candidate.key])
            if job is None or candidate.key in cycle.moving or candidate.key in served:
                continue
            if is_requested(job, now=cycle.now):
                asked.append(_Wanted(candidate, applies=True, requested=True))
                continue
            patience = timedelta(seconds=rules.waits_seconds(candidate.priority))
            may = rules.mode != "Off" and not self._is_beyond_limit(candidate)
            if may and _waits_since(job) + patience <= cycle.now:
                others.append(_Wanted(candidate, applies=rules.mode == "Apply", requested=False))
        return sorted([*asked, *others], key=lambda each: each.candidate.key not in self._left)

    def _is_beyond_limit(self, candidate: Candidate) -> bool:
        """Whether a limit keeps the job waiting: no room would help, and the search would take others' time."""
        verdict = self._state.decisions.verdicts.get(candidate.key)
        return isinstance(verdict, Waits) and verdict.reason == "Quota"

    def _move_of(self, job: GPUJob) -> Move | None:
        return move_of(job, state=self._state)

    def _plans(
        self, wanted: Sequence["_Wanted"], *, cycle: Cycle, pause: Callable[[], None], slices: TimeSlices
    ) -> Iterator[dict[str, MovePlan | NoPlan]]:
        """The plans for these jobs, as an iterator of one item that pauses while it is made."""
        if not wanted:
            return
        from dovetail_operator.queue.move_search import plans_for  # noqa: PLC0415 - most operators never need it

        state, deleted = self._state, self._state.moves_of_deleted.times(now=cycle.now)
        left = state.moves.left(
            state.store.jobs.values(), now=cycle.now, of_deleted=len(deleted), decided=state.decisions.moves
        )
        candidates = [each.candidate for each in wanted]
        yield plans_for(
            candidates,
            state=state,
            cycle=cycle,
            left=left,
            pause=pause,
            busy_seconds=lambda: slices.busy_seconds,
        )

    def _begin(self, plan: MovePlan) -> bool:
        """Decide on the moves of a plan. False if one of its jobs has changed while it was made."""
        movers = [self._job_of(each.mover.job) for each in plan.moves]
        waits = self._job_of(plan.starts)
        if waits is None or waits.spec.suspend or waits.spec.cancel:
            return False
        if isinstance(self._state.decisions.verdicts.get(plan.starts.key), Admitted):
            return False
        if not all(job is not None and self._runs(job) for job in movers):
            return False
        now = self._now()
        for each, job in zip(plan.moves, movers, strict=True):
            assert job is not None, "all of them run"
            held = Kept(at_seconds=plan.in_seconds + each.away_seconds, claims=each.claims, now=each.claims)
            before = job.status.move or Move()
            room = reserved_room(held, now=now)
            move = msgspec.structs.replace(before, by=plan.starts.key, reserved=room, message="")
            self._state.decisions.set_move(job.metadata.uid, move=move)
            self._changed(key_of(job.metadata))
        self._wake_up.soon()
        return True

    def _job_of(self, candidate: Candidate) -> GPUJob | None:
        job = self._state.store.jobs.get(candidate.name)
        return job if job is not None and job.metadata.uid == candidate.key else None

    def _runs(self, job: GPUJob) -> bool:
        """Whether it still runs, and is not about to end for anything else."""
        about_to_end = job.metadata.uid in self._state.decisions.notices or job.spec.suspend or job.spec.cancel
        return is_on_the_way(job, child=self._state.store.child_of(job)) and not about_to_end

    def _count(self, plan: MovePlan | NoPlan, *, begins: bool) -> None:
        if isinstance(plan, MovePlan):
            self._counters.move_plans.labels("Apply" if begins else "Plan").inc()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A waiting job for which moves are sought, whether a plan is carried out, and whether it was requested."""

    candidate: Candidate
    applies: bool
    requested: bool


def _waits_since(job: GPUJob) -> datetime:
    """Since when the job waits for its start."""
    admitted = find_condition(job.status.conditions, type="Admitted")
    since = None if admitted is None or admitted.status == "True" else admitted.last_transition_time
    return moment(since or job.metadata.creation_timestamp)


def _clause(plan: MovePlan | NoPlan) -> Sentence:
    if isinstance(plan, NoPlan):
        return says.NO_MOVES() + plan.why
    lost = f"{plan.lost_device_seconds / 3600:.2f}"
    return says.WOULD_MOVE(seconds=round(plan.in_seconds), count=len(plan.moves), lost=lost)
