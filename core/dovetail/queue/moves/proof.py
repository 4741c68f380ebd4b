"""The proof of plans of moves, on the ledger and the queue of one moment.

1. Sets of running jobs that would make room for a waiting job, from `candidates`, the cheapest first.
2. Each is tried on a copy of the ledger: the jobs leave, the waiting job is placed, then each of them again. What one
   plan takes is held for the next ones.
3. What a job gains must exceed what its moves lose.
4. The queue's own cycle decides on the result of all plans. It must start each of their jobs, within all limits and
   reservations, and by expected run times no other waiting job starts later than without the moves. Where that does not
   hold, halves of the plans are proven, the second one on top of the first.

Nothing ends before all of this holds. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from dovetail.api.reasons import moves as says
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.estimates.simulation import FORESEEN_JOBS, play
from dovetail.queue.model.candidates import Candidate, Leaving, Sites
from dovetail.queue.moves.plan import Move, MovePlan, NoPlan, Rules
from dovetail.queue.moves.residents import RESTART_SECONDS
from dovetail.queue.moves.search import MovableJobs, Queue, Search, Tried, lost_device_seconds, refusal
from dovetail.queue.preemption.policy import ENDING_SECONDS
from dovetail.queue.preemption.victims import without_pause
from dovetail.queue.verdicts import Admitted, Waits

# How many of the plans for one job that fit on the ledger are put to the queue.
_PROOFS: Final = 4
_NOT_MOVED: Final = NoPlan(why=says.NO_JOBS())
_DELAYS: Final = NoPlan(why=says.DELAY())
_USED_UP: Final = NoPlan(why=says.USED_UP())


def _never() -> bool:
    return False


def plan_moves(
    job: Candidate,
    *,
    queue: Queue,
    movable: MovableJobs,
    starts: Mapping[str, float] | None = None,
    pause: Callable[[], None] = without_pause,
) -> MovePlan | NoPlan:
    """The cheapest moves that are proven to start a waiting job; or why there are none. See `plan_together`."""
    return plan_together([job], queue=queue, movable=movable, starts=starts, pause=pause)[job.key]


def plan_together(
    jobs: Sequence[Candidate],
    *,
    queue: Queue,
    movable: MovableJobs,
    starts: Mapping[str, float] | None = None,
    pause: Callable[[], None] = without_pause,
    is_over: Callable[[], bool] = _never,
) -> dict[str, MovePlan | NoPlan]:
    """By key of the waiting job, the cheapest moves that are proven to start it; or why there are none.

    All plans hold together, and in whichever order they are carried out: no two need the same device or move the same
    job, and the budgets of all are kept. The first jobs choose first. Once the time `is_over`, no plan is sought any
    more, and those that are found are proven until one holds. The jobs that are left have no entry.

    `movable` has been made of the queue's ledger, or of one on which moves that are under way hold both their ends.
    `starts` are the `expected_starts` of the queue, if they are known already. `pause` is called between the parts of a
    long search.
    """
    before = expected_starts(queue, pause=pause) if starts is None else starts
    planner = _Planner(queue=queue, movable=movable, before=before, pause=pause, is_over=is_over)
    try:
        return planner.plans(jobs)
    finally:
        planner.search.close()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """That the queue starts the jobs of some plans: what they hold then, and how many other jobs were compared."""

    claims: Mapping[str, tuple[Claim, ...]]
    compared: int


class _Planner:
    """Plans for several jobs of one moment. `before` says when jobs start without them."""

    def __init__(
        self,
        *,
        queue: Queue,
        movable: MovableJobs,
        before: Mapping[str, float],
        pause: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.search = Search(queue=queue, movable=movable)
        self._queue = queue
        self._rules = movable.rules
        self._before = before
        self._pause = pause
        self._is_over = is_over
        self._proven: list[Tried] = []
        self._proof: _Proof | None = None
        self._problems: dict[str, NoPlan] = {}

    def plans(self, jobs: Sequence[Candidate]) -> dict[str, MovePlan | NoPlan]:
        """The plans, and why there are none; without the jobs for which no time is left."""
        self.search.expect([job for job in jobs if self._before.get(job.key) != 0.0])
        left = jobs
        while left:
            drafts, without = self._drafts(left)
            self._prove(drafts)
            # What a refused plan held is free again, and so is its part of the budget of moves.
            left = without if any(each.job.key in self._problems for each in drafts) else ()
        made = {tried.job.key: self._plan_of(tried) for tried in self._proven}
        return {job.key: plan for job in jobs if (plan := made.get(job.key) or self._problems.get(job.key)) is not None}

    def _drafts(self, jobs: Sequence[Candidate]) -> tuple[list[Tried], list[Candidate]]:
        """Plans that fit on the ledger next to each other, and the jobs for which nothing is left next to these."""
        drafts, without, unmovable = list[Tried](), list[Candidate](), set[object]()
        for job in jobs:
            if self._is_over():
                break
            found = self._draft(job, unmovable=unmovable)
            if isinstance(found, Tried):
                self.search.hold(found)
                self._problems.pop(job.key, None)
                drafts.append(found)
                continue
            self._problems[job.key] = found
            if found is _NOT_MOVED or found is _USED_UP:
                without.append(job)
        return drafts, without

    def _draft(self, job: Candidate, *, unmovable: set[object]) -> Tried | NoPlan:
        """The cheapest moves that fit on the ledger, if they gain more than they lose. Adds to `unmovable`."""
        if (refused := refusal(job.ask)) is not None:
            return refused
        if self._before.get(job.key) == 0.0:
            return NoPlan(why=says.NOT_NEEDED())
        if self.search.is_used_up:
            return _USED_UP
        # Room only shrinks while plans are made. Reservations of its own quotas are room for a job, not for others.
        alike = job.shape, frozenset(each.job.key for each in self._queue.windows.against(job))
        tried = None if alike in unmovable else next(self.search.found(job, pause=self._pause), None)
        if tried is None:
            unmovable.add(alike)
            return _NOT_MOVED
        return self._worthless(tried) or tried

    def _worthless(self, tried: Tried) -> NoPlan | None:
        """Why moves are not worth it; None where they are."""
        lost, gain = tried.lost_device_seconds, self._gain(tried.job)
        if lost < gain - self._rules.least_gain:
            return None
        return NoPlan(why=says.LOSE_MORE(lost=round(lost), gained=round(gain)))

    def _gain(self, job: Candidate) -> float:
        return _gain(job, otherwise=self._before.get(job.key), rules=self._rules)

    def _prove(self, drafts: Sequence[Tried]) -> None:
        """Prove these plans next to those that are proven, all at once or as many as hold."""
        if not drafts:
            return
        proof = self._put_to_the_queue([*self._proven, *drafts])
        if isinstance(proof, _Proof):
            self._proven += drafts
            self._proof = proof
        elif len(drafts) == 1:
            self._prove_another(drafts[0], problem=proof)
        elif self._proven and self._is_over():
            # Without one, the next round would spend its time in the same way, and no job would ever move.
            for each in drafts:
                self.search.drop(each)
        else:
            self._prove(drafts[: len(drafts) // 2])
            self._prove(drafts[len(drafts) // 2 :])

    def _prove_another(self, refused: Tried, *, problem: NoPlan) -> None:
        """Prove other moves for the job whose first ones are refused, or say why none hold."""
        self.search.drop(refused)
        proofs, before = 1, set[frozenset[str]]([_keys(refused)])
        for tried in self.search.found(refused.job, pause=self._pause):
            if proofs == _PROOFS or self._is_over():
                break
            if _keys(tried) in before:
                continue
            if (worthless := self._worthless(tried)) is not None:
                # The next ones cost more.
                problem = worthless
                break
            proof, proofs = self._put_to_the_queue([*self._proven, tried]), proofs + 1
            if isinstance(proof, _Proof):
                self.search.hold(tried)
                self._proven.append(tried)
                self._proof = proof
                return
            problem = proof
            before.add(_keys(tried))
        self._problems[refused.job.key] = problem

    def _put_to_the_queue(self, plans: Sequence[Tried]) -> _Proof | NoPlan:
        """The proof that the queue starts the jobs of these plans after all their moves, and no other job later.

        What it says where there is none is about the last of the plans: that this one's job waits, or that the plan
        keeps others waiting.
        """
        queue, wanted = self._queue, {each.job.key: each for each in plans}
        ledger, leaving = _after(plans, queue=queue, rules=self._rules)
        sites: Sites = dict(queue.sites) | {_home(each): _nodes(each) for each in plans}
        waiting = [
            replace(job, site=_home(plan)) if (plan := wanted.get(job.key)) is not None else job
            for job in queue.waiting
        ]
        queue = replace(queue, sites=sites, waiting=waiting)
        look = SchedulingCycle(ledger.copy(), sites=sites, leaving=leaving, gate=queue.gate(), windows=queue.windows)
        claims = dict[str, tuple[Claim, ...]]()
        for each in look.in_order(waiting):
            self._pause()
            found = look.at(each)
            if each.key not in wanted:
                continue
            if isinstance(found, Waits):
                if each.key != plans[-1].job.key:
                    return _DELAYS
                return NoPlan(why=says.QUEUE_REFUSES() + Sentence(message=found.message, clauses=found.details))
            claims[each.key] = found.claims
            if len(claims) == len(wanted):
                break
        assert len(claims) == len(wanted), "all of them wait"
        before = {key: at for key, at in self._before.items() if key not in wanted}
        if before:
            until = max(before.values())
            after = _starts(queue, ledger=ledger, leaving=leaving, until=until, pause=self._pause)
            if any(after.get(key, float("inf")) > at for key, at in before.items()):
                return _DELAYS
        return _Proof(claims=claims, compared=len(before))

    def _plan_of(self, tried: Tried) -> MovePlan:
        assert self._proof is not None, "it is proven"
        return MovePlan(
            starts=tried.job,
            claims=self._proof.claims[tried.job.key],
            in_seconds=_start_seconds(self._rules),
            otherwise_seconds=self._before.get(tried.job.key),
            moves=tuple(_moves(tried, queue=self._queue, rules=self._rules)),
            lost_device_seconds=tried.lost_device_seconds,
            gained_device_seconds=self._gain(tried.job),
            compared=self._proof.compared,
        )


def _keys(tried: Tried) -> frozenset[str]:
    return frozenset(each.job.key for each in tried.movers)


def _home(plan: Tried) -> str:
    """The site of the nodes on which the job of a plan is to start: others free room elsewhere."""
    return f"plan for {plan.job.key}"


def _nodes(plan: Tried) -> list[str]:
    return list(dict.fromkeys(claim.node for claim in plan.room))


def _start_seconds(rules: Rules) -> float:
    """When the job starts by a plan, at most: once the last of those that move has ended."""
    return rules.grace_seconds + ENDING_SECONDS


def _gain(job: Candidate, *, otherwise: float | None, rules: Rules) -> float:
    """The device-seconds that the job uses before it would start without moves."""
    runs = job.run_seconds if job.likely_seconds is None else job.likely_seconds
    earlier = runs if otherwise is None else min(runs, max(0.0, otherwise - _start_seconds(rules)))
    return job.gpus * earlier


def _moves(tried: Tried, *, queue: Queue, rules: Rules) -> Iterator[Move]:
    for each in tried.movers:
        yield Move(
            mover=each,
            held=tuple(claim for key in each.claims if (claim := queue.ledger.claim(key)) is not None),
            claims=tried.after[each.job.key],
            lost_device_seconds=lost_device_seconds(each, rules=rules),
            away_seconds=ENDING_SECONDS + RESTART_SECONDS,
        )


def _after(plans: Sequence[Tried], *, queue: Queue, rules: Rules) -> tuple[Ledger, list[Leaving]]:
    """The ledger after the moves, and the expected ends there: those of the jobs that moved are later."""
    ledger, later = queue.ledger.copy(), dict[str, list[Leaving]]()
    movers = {each.job.key: (each, plan.after[each.job.key]) for plan in plans for each in plan.movers}
    gone = {key for each, _ in movers.values() for key in each.claims}
    for key in gone:
        ledger.release(key)
    leaving = list[Leaving]()
    for end in queue.leaving:
        (later.setdefault(end.job, []) if end.key in gone else leaving).append(end)
    for mover, claims in movers.values():
        ledger.commit_all(claims)
        if ends := later.get(mover.job.key):
            unsaved = mover.unsaved_seconds(grace_seconds=rules.grace_seconds)
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
