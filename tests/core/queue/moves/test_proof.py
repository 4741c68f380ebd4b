"""Plans of moves: who restarts where so that a waiting job starts, and whom nothing may cost."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from dovetail.api.reasons import moves as says
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.backfill.reservation import beyond
from dovetail.queue.model.candidates import Candidate, Leaving, Room, find_room
from dovetail.queue.model.gate import Gate, Open, Refused
from dovetail.queue.moves.plan import Movable, MovePlan, NoPlan, Rules
from dovetail.queue.moves.proof import plan_moves, plan_together
from dovetail.queue.moves.residents import RESTART_SECONDS
from dovetail.queue.moves.search import MovableJobs, Queue
from dovetail.queue.moves.under_way import Moving, with_moves
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import make_job

HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A job that runs on a node: since when, how often it saves its work, and whether it may move."""

    job: Candidate
    node: str
    ran: float = 1000.0
    saves: float = float("inf")
    moves: bool = True
    ends: float | None = None
    budget: str = ""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A queue, and the running jobs that may move."""

    queue: Queue
    movable: Sequence[Movable]

    def plan(self, job: Candidate, *, rules: Rules | None = None) -> MovePlan | NoPlan:
        able = MovableJobs(self.movable, ledger=self.queue.ledger, rules=rules)
        return plan_moves(job, queue=self.queue, movable=able)

    def together(
        self, *jobs: Candidate, rules: Rules | None = None, is_over: Callable[[], bool] = lambda: False
    ) -> list[MovePlan | NoPlan]:
        able = MovableJobs(self.movable, ledger=self.queue.ledger, rules=rules)
        return list(plan_together(jobs, queue=self.queue, movable=able, is_over=is_over).values())


def scene(
    *runs: Runs, waiting: Sequence[Candidate] = (), nodes: dict[str, int] | None = None, **facts: object
) -> Scene:
    ledger = make_ledger(**({"a": 4, "b": 4} if nodes is None else nodes))
    movable, leaving = [], []
    for each in runs:
        claims = start(each.job, node=each.node, ledger=ledger)
        if each.ends is not None:
            leaving += [Leaving(at_seconds=each.ends, key=key, job=each.job.key) for key in claims]
        if each.moves:
            covered = {each.budget: len(claims)} if each.budget else {}
            movable.append(
                Movable(
                    job=each.job,
                    claims=claims,
                    run_seconds=each.ran,
                    saved_every_seconds=each.saves,
                    covered_pods=covered,
                )
            )
    queue = Queue(ledger=ledger, waiting=waiting, leaving=leaving, **facts)  # type: ignore[arg-type]
    return Scene(queue=queue, movable=movable)


def start(job: Candidate, *, node: str, ledger: Ledger) -> tuple[str, ...]:
    """The job runs on this node, under the UIDs of its pods."""
    found = find_room(replace(job, site="one"), ledger=ledger, fit_cache=FitCache(ledger), sites={"one": [node]})
    assert isinstance(found, Room), job
    claims = [replace(claim, key=f"pod-{job.key}-{at}") for at, claim in enumerate(found.claims)]
    ledger.commit_all(claims)
    return tuple(claim.key for claim in claims)


def moves(plan: MovePlan | NoPlan) -> dict[str, str]:
    """Where each job that moves goes: the nodes of its workers."""
    assert isinstance(plan, MovePlan), plan
    return {
        each.mover.job.key.removeprefix("uid-"): " ".join(claim.node for claim in each.claims) for each in plan.moves
    }


BIG = make_job("big", "4")


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    runs: tuple[Runs, ...]
    moves: dict[str, str]
    wants: Candidate = BIG
    nodes: dict[str, int] = field(default_factory=lambda: {"a": 4, "b": 4})


CASES = (
    Case(
        says="one job leaves a node that another job needs whole",
        runs=(Runs(job=make_job("x", "1"), node="a"), Runs(job=make_job("y", "3"), node="b")),
        moves={"x": "b"},
    ),
    Case(
        says="the job that loses least moves",
        runs=(
            Runs(job=make_job("x", "2"), node="a", ran=HOUR),
            Runs(job=make_job("y", "2"), node="b", ran=HOUR, saves=600.0),
        ),
        moves={"y": "a"},
    ),
    Case(
        says="two small ones move where no single one suffices",
        runs=(
            Runs(job=make_job("x", "1"), node="a"),
            Runs(job=make_job("y", "1"), node="a"),
            Runs(job=make_job("z", "2"), node="b", moves=False),
        ),
        moves={"x": "b", "y": "b"},
    ),
    Case(
        says="a share moves to a device that another one has opened",
        runs=(
            Runs(job=make_job("x", "0.3"), node="a"),
            Runs(job=make_job("y", "0.5"), node="b"),
            Runs(job=make_job("z", "3"), node="a", moves=False),
        ),
        wants=make_job("big", "1"),
        nodes={"a": 4, "b": 1},
        moves={"x": "b"},
    ),
    Case(
        says="a gang moves as a whole",
        runs=(
            Runs(job=replace(make_job("x", "1"), workers=2), node="a"),
            Runs(job=make_job("y", "2"), node="b", moves=False),
        ),
        moves={"x": "b b"},
    ),
    Case(
        says="a gang starts where two nodes are emptied for it",
        runs=(
            Runs(job=make_job("x", "1"), node="a"),
            Runs(job=make_job("y", "1"), node="b"),
        ),
        wants=replace(make_job("big", "4"), workers=2),
        nodes={"a": 4, "b": 4, "c": 2},
        moves={"x": "c", "y": "c"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_the_plan_is_the_cheapest_one_that_holds(case: Case) -> None:
    found = scene(*case.runs, waiting=[case.wants], nodes=case.nodes).plan(case.wants)
    assert moves(found) == case.moves


@dataclass(frozen=True, kw_only=True)
class Refusal:
    says: str
    runs: tuple[Runs, ...]
    reason: str
    wants: Candidate = BIG
    others: tuple[Candidate, ...] = ()
    nodes: dict[str, int] = field(default_factory=lambda: {"a": 4, "b": 4})
    rules: Rules = field(default_factory=Rules)


ONE = Runs(job=make_job("x", "1"), node="a")
CPU = replace(make_job("cpu", "1", cpu=10_000), ask=Ask(gpu=None, cpu_milli=10_000))
THREE = Runs(job=make_job("y", "3"), node="b", moves=False)
REFUSALS = (
    Refusal(says="a job that may not move stays", runs=(replace(ONE, moves=False), THREE), reason="no set of jobs"),
    Refusal(
        says="nobody moves where the job that moves has no place",
        runs=(ONE, replace(THREE, job=make_job("y", "4"))),
        reason="no set of jobs",
    ),
    Refusal(says="a job that has room starts by itself", runs=(), reason="it starts without moves"),
    Refusal(
        says="a job without GPUs gains nothing",
        runs=(ONE, THREE),
        wants=replace(BIG, ask=replace(BIG.ask, gpu=None)),
        reason="it requests no GPU",
    ),
    Refusal(
        says="a job without GPUs stays, although its node's CPU is short",
        runs=(Runs(job=CPU, node="a"), Runs(job=make_job("y", "4"), node="b", moves=False)),
        wants=make_job("big", "4", cpu=60_000),
        reason="no set of jobs",
    ),
    Refusal(
        says="a PodDisruptionBudget that allows none is kept",
        runs=(replace(ONE, budget="ns/web"), THREE),
        rules=Rules(disruptions_allowed={"ns/web": 0}),
        reason="no set of jobs",
    ),
    Refusal(
        says="more work is lost than is gained",
        runs=(replace(ONE, ran=100 * HOUR), THREE),
        wants=replace(BIG, run_seconds=60.0),
        reason="the moves would lose",
    ),
    Refusal(
        says="more jobs than a plan may move",
        runs=(ONE, replace(ONE, job=make_job("z", "1")), replace(THREE, job=make_job("y", "2"))),
        rules=Rules(most_moves=1),
        reason="no set of jobs",
    ),
    Refusal(
        says="the room goes to a job before it in the queue",
        runs=(ONE, THREE),
        others=(make_job("first", "4", priority=50),),
        reason="the queue would not start it after the moves",
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.says)
def test_nothing_moves_without_a_proof(case: Refusal) -> None:
    found = scene(*case.runs, waiting=[case.wants, *case.others], nodes=case.nodes).plan(case.wants, rules=case.rules)
    assert isinstance(found, NoPlan), found
    assert case.reason in found.why.message


def test_a_plan_delays_the_start_of_nobody() -> None:
    # Node a is kept for `big`. Without moves, `next` starts on b in a minute. If x moved there, one GPU would be left.
    runs = (
        replace(ONE, ends=HOUR),
        Runs(job=make_job("y", "2"), node="b", moves=False),
        Runs(job=make_job("short", "1"), node="b", moves=False, ends=60.0),
    )
    assert moves(scene(*runs, waiting=[BIG]).plan(BIG)) == {"x": "b"}
    found = scene(*runs, waiting=[BIG, make_job("next", "2", at=1)]).plan(BIG)
    assert isinstance(found, NoPlan)
    assert "would delay the start of another job" in found.why.message


class Closed(Open):
    """A limit that nobody passes."""

    def refusal(self, job: Candidate) -> Refused | None:
        return Refused(reason="Quota", message=f"GPUQuota team: {job.name} is beyond its limit")


def test_a_limit_that_keeps_the_job_waiting_is_no_matter_of_room() -> None:
    def gate() -> Gate:
        return Closed()

    found = scene(ONE, THREE, waiting=[BIG], gate=gate).plan(BIG)
    assert isinstance(found, NoPlan)
    assert "is beyond its limit" in found.why.message


def test_an_advance_reservation_keeps_its_gpus() -> None:
    window = Window(name="night", quota="team", at_seconds=0.0, gpus=1, until="tonight", nodes=["b"])
    without = scene(ONE, THREE, waiting=[BIG])
    kept = Windows(reservations=placed([window], ledger=without.queue.ledger, leaving=[]), wanted=[window])
    found = replace(without, queue=replace(without.queue, windows=kept)).plan(BIG)
    assert isinstance(without.plan(BIG), MovePlan)
    assert isinstance(found, NoPlan), found


def test_a_plan_says_what_it_costs_and_gains() -> None:
    runs = (replace(ONE, ran=1000.0, saves=300.0, ends=2000.0), replace(THREE, ends=5000.0))
    found = scene(*runs, waiting=[BIG]).plan(BIG, rules=Rules(grace_seconds=30.0))
    assert isinstance(found, MovePlan)
    assert found.otherwise_seconds == 2000.0
    assert found.in_seconds == 60.0
    assert found.lost_device_seconds == 300.0 + RESTART_SECONDS
    assert found.gained_device_seconds == 4 * (2000.0 - 60.0)
    assert found.net_device_seconds == found.gained_device_seconds - found.lost_device_seconds


def test_a_search_leaves_the_ledger_as_it_was() -> None:
    made = scene(ONE, THREE, waiting=[BIG])
    before = made.queue.ledger.content()
    made.plan(BIG)
    assert made.queue.ledger.content() == before


@st.composite
def queues(draw: st.DrawFn) -> tuple[Scene, list[Candidate]]:
    """Two to four nodes with four GPUs, jobs wherever they came to, and one to three that wait."""
    names = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    made = scene(nodes=dict.fromkeys(names, 4))
    ledger, movable, leaving = made.queue.ledger, [], []
    for number in range(draw(st.integers(3, 9))):
        job = make_job(f"r{number}", draw(st.sampled_from(("1", "1", "2", "0.5"))))
        node = draw(st.sampled_from(names))
        found = find_room(replace(job, site="s"), ledger=ledger, fit_cache=FitCache(ledger), sites={"s": [node]})
        if not isinstance(found, Room):
            continue
        claims = start(job, node=node, ledger=ledger)
        if draw(st.booleans()):
            leaving += [Leaving(at_seconds=draw(st.sampled_from((60.0, 600.0, HOUR))), key=claims[0], job=job.key)]
        movable.append(Movable(job=job, claims=claims, run_seconds=float(draw(st.integers(0, 5000)))))
    gpus = st.sampled_from(("4", "3", "2"))
    waiting = [make_job(f"w{number}", draw(gpus), at=number) for number in range(draw(st.integers(1, 3)))]
    queue = replace(made.queue, waiting=waiting, leaving=leaving)
    return Scene(queue=queue, movable=movable), waiting


@given(queues())
def test_no_plan_promises_a_device_twice_or_moves_a_job_twice(drawn: tuple[Scene, list[Candidate]]) -> None:
    made, waiting = drawn
    for job in waiting:
        plan = made.plan(job)
        if isinstance(plan, NoPlan):
            continue
        event("a plan")
        moved = [each.mover.job.key for each in plan.moves]
        assert len(set(moved)) == len(moved)
        assert plan.net_device_seconds > 0
        gone = {claim.key for move in plan.moves for claim in move.held}
        stay = [claim for claim in made.queue.ledger.claims() if claim.key not in gone]
        held: Counter[str] = Counter()
        for claim in [*stay, *plan.claims, *(claim for move in plan.moves for claim in move.claims)]:
            for device in claim.devices:
                held[device.uuid] += device.share_milli
        assert max(held.values()) <= 1000


@given(queues())
def test_plans_of_one_moment_do_not_depend_on_each_other(drawn: tuple[Scene, list[Candidate]]) -> None:
    made, waiting = drawn
    able = MovableJobs(made.movable, ledger=made.queue.ledger)
    for job in waiting:
        assert plan_moves(job, queue=made.queue, movable=able) == made.plan(job)


def pairs(*, count: int, budget: str = "") -> Scene:
    """So many jobs that wait for four GPUs, on twice as many nodes with one job of two GPUs on each."""
    names = [f"n{number}" for number in range(2 * count)]
    runs = [Runs(job=make_job(f"r{name}", "2"), node=name, budget=budget) for name in names]
    waiting = [make_job(f"w{number}", "4", at=number) for number in range(count)]
    return scene(*runs, waiting=waiting, nodes=dict.fromkeys(names, 4))


def test_plans_for_several_jobs_move_one_job_for_each() -> None:
    made = pairs(count=3)
    plans = made.together(*made.queue.waiting)
    moved = [next(iter(moves(plan))) for plan in plans]
    targets = [next(iter(moves(plan).values())) for plan in plans]
    started = [plan.claims[0].node for plan in plans if isinstance(plan, MovePlan)]
    assert [f"r{node}" for node in started] == moved
    # Three nodes are emptied, and each of the other three takes one job.
    assert len({*started, *targets}) == 6


def test_no_job_moves_to_a_node_that_another_plan_is_to_empty() -> None:
    small = [Runs(job=make_job(f"r{at}", "2"), node=f"a{at}") for at in range(3)]
    fixed = [Runs(job=make_job(f"f{at}", "2"), node=f"z{at}", moves=False) for at in range(3)]
    waiting = [make_job(f"w{at}", "4", at=at) for at in range(3)]
    names = [each.node for each in (*small, *fixed)]
    made = scene(*small, *fixed, waiting=waiting, nodes=dict.fromkeys(names, 4))
    # One after the other, the first job would go to the next node that could be emptied.
    assert moves(made.plan(waiting[0])) == {"r0": "a1"}
    assert [moves(plan) for plan in made.together(*waiting)] == [{"r0": "z0"}, {"r1": "z1"}, {"r2": "z2"}]


def test_the_budget_of_moves_counts_all_plans_of_a_moment() -> None:
    made = pairs(count=3)
    plans = made.together(*made.queue.waiting, rules=Rules(moves_left=2))
    assert [isinstance(plan, MovePlan) for plan in plans] == [True, True, False]


def test_two_plans_never_need_the_same_disruption() -> None:
    made = pairs(count=3, budget="ns/web")
    plans = made.together(*made.queue.waiting, rules=Rules(disruptions_allowed={"ns/web": 1}))
    assert [isinstance(plan, MovePlan) for plan in plans] == [True, False, False]


class One(Open):
    """A limit that one job passes."""

    def refusal(self, job: Candidate) -> Refused | None:
        return None if job.key == "uid-w1" else Refused(reason="Quota", message=f"{job.key} is beyond its limit")


def limited(made: Scene, *, gate: Callable[[], Gate]) -> Scene:
    return replace(made, queue=replace(made.queue, gate=gate))


def test_a_job_that_the_queue_would_not_start_keeps_no_other_from_its_plan() -> None:
    made = limited(pairs(count=3), gate=One)
    plans = made.together(*made.queue.waiting)
    assert [isinstance(plan, MovePlan) for plan in plans] == [False, True, False]


def test_what_a_refused_plan_held_is_there_for_the_others() -> None:
    made = limited(pairs(count=2), gate=One)
    plans = made.together(*made.queue.waiting, rules=Rules(moves_left=1))
    assert [isinstance(plan, MovePlan) for plan in plans] == [False, True]


def test_where_the_time_is_over_the_jobs_that_are_left_have_no_answer() -> None:
    made, times = pairs(count=3), iter([False, False])
    plans = made.together(*made.queue.waiting, is_over=lambda: next(times, True))
    assert [isinstance(plan, MovePlan) for plan in plans] == [True, True]


def test_where_the_time_is_over_plans_are_proven_until_one_holds() -> None:
    made, times = limited(pairs(count=3), gate=One), iter([False] * 3)
    plans = made.together(*made.queue.waiting, is_over=lambda: next(times, True))
    assert [isinstance(plan, MovePlan) for plan in plans] == [False, True, False]


def test_a_plan_that_keeps_an_earlier_one_from_its_start_says_nothing_of_that_job() -> None:
    class First(Open):
        """A limit that the first job takes up."""

        def __init__(self) -> None:
            self.key = ""

        def started(self, job: Candidate) -> None:
            self.key = job.key

        def refusal(self, job: Candidate) -> Refused | None:
            free = self.key in {"", job.key}
            return None if free else Refused(reason="Quota", message=f"{job.key} is beyond its limit")

    runs = (
        Runs(job=make_job("x", "1"), node="a"),
        Runs(job=make_job("y", "3"), node="b", moves=False),
        Runs(job=make_job("z", "3"), node="c"),
        Runs(job=make_job("f", "1"), node="d", moves=False),
        Runs(job=make_job("g", "1"), node="e", moves=False),
    )
    large, small = make_job("large", "6"), make_job("small", "4", at=1)
    nodes = {"a": 4, "b": 4, "c": 6, "d": 4, "e": 4}
    made = limited(scene(*runs, waiting=[large, small], nodes=nodes), gate=First)
    # Somebody has requested moves for the later one, so its plan is sought first.
    first, second = made.together(small, large)
    assert isinstance(first, MovePlan)
    assert second == NoPlan(why=says.DELAY())


def test_a_reservation_of_another_quota_keeps_no_job_like_it_from_its_plan() -> None:
    window = Window(name="night", quota="team", at_seconds=0.0, gpus=1, until="tonight", nodes=["a"])
    first, second = replace(BIG, key="uid-other"), replace(BIG, key="uid-own", created="2026-01-01T00:00:09Z")
    made = scene(ONE, THREE, waiting=[first, second])
    kept = Windows(
        reservations=placed([window], ledger=made.queue.ledger, leaving=[]),
        wanted=[window],
        quotas_of={second.key: frozenset({"team"})},
    )
    plans = replace(made, queue=replace(made.queue, windows=kept)).together(first, second)
    assert isinstance(plans[0], NoPlan)
    assert "no set of jobs" in plans[0].why.message
    assert isinstance(plans[1], MovePlan)


def test_the_search_for_a_gang_may_pause_at_each_worker() -> None:
    def pauses(workers: int) -> int:
        wants = replace(BIG, workers=workers)
        made = scene(ONE, THREE, waiting=[wants], nodes={"a": 4, "b": 4} | {f"n{at}": 4 for at in range(workers - 1)})
        count = Counter[str]()
        able = MovableJobs(made.movable, ledger=made.queue.ledger)
        found = plan_moves(wants, queue=made.queue, movable=able, pause=lambda: count.update(["pause"]))
        assert moves(found) == {"x": "b"}
        return count.total()

    assert pauses(16) - pauses(8) >= 8


def test_what_one_plan_frees_beyond_its_need_is_no_place_for_another() -> None:
    # For `first`, both workers of x leave a: one GPU stays free there, which y would need for `second`.
    runs = (
        Runs(job=replace(make_job("x", "2"), workers=2), node="a", ran=60.0),
        Runs(job=make_job("fixed", "1"), node="a", moves=False),
        Runs(job=make_job("y", "1"), node="b", ran=HOUR),
        Runs(job=make_job("z", "1"), node="b", moves=False),
    )
    first, second = make_job("first", "3"), make_job("second", "3", at=1)
    made = scene(*runs, waiting=[first, second], nodes={"a": 5, "b": 4, "c": 2, "d": 2})
    assert [isinstance(plan, MovePlan) for plan in made.together(first, second)] == [True, False]
    alone = replace(made, queue=replace(made.queue, waiting=[second]))
    assert isinstance(alone.plan(second), MovePlan)


@given(queues())
def test_plans_of_one_moment_hold_both_ends_at_once(drawn: tuple[Scene, list[Candidate]]) -> None:
    made, waiting = drawn
    before = made.queue.ledger.content()
    plans = [plan for plan in made.together(*waiting) if isinstance(plan, MovePlan)]
    event(f"{len(plans)} plans")
    moved = [move.mover.job.key for plan in plans for move in plan.moves]
    assert len(set(moved)) == len(moved)
    held: Counter[str] = Counter()
    stands = made.queue.ledger.claims()
    elsewhere = [claim for plan in plans for move in plan.moves for claim in move.claims]
    rooms = [
        claim
        for plan in plans
        for claim in beyond(plan.claims, given=[claim for move in plan.moves for claim in move.held])
    ]
    for claim in [*stands, *elsewhere, *rooms]:
        for device in claim.devices:
            held[device.uuid] += device.share_milli
    assert max(held.values(), default=0) <= 1000
    assert made.queue.ledger.content() == before


@given(queues())
def test_plans_that_are_under_way_hold_what_those_of_one_moment_hold(drawn: tuple[Scene, list[Candidate]]) -> None:
    made, waiting = drawn
    first = made.plan(waiting[0])
    if isinstance(first, NoPlan) or len(waiting) == 1:
        return
    event("a plan")
    begun = made.queue.ledger.copy()
    begun.commit_all([claim for move in first.moves for claim in move.claims])
    moving = Moving(job=waiting[0], claims=tuple(claim.key for move in first.moves for claim in move.held))
    held, after = with_moves([moving], ledger=begun, sites={})
    leaving = [each for each in made.queue.leaving if each.key not in moving.claims]
    able = MovableJobs([each for each in made.movable if each.job.key not in moves_of(first)], ledger=held)
    queue = replace(made.queue, ledger=after, leaving=leaving)
    found = plan_moves(waiting[1], queue=queue, movable=able)
    stands: Counter[str] = Counter()
    for claim in [*held.claims(), *claims_of(found)]:
        for device in claim.devices:
            stands[device.uuid] += device.share_milli
    assert max(stands.values()) <= 1000
    assert isinstance(found, NoPlan) or not moves_of(first) & moves_of(found)


def moves_of(plan: MovePlan | NoPlan) -> set[str]:
    return set() if isinstance(plan, NoPlan) else {move.mover.job.key for move in plan.moves}


def claims_of(plan: MovePlan | NoPlan) -> list[Claim]:
    """What a plan takes beyond what its own moves free."""
    if isinstance(plan, NoPlan):
        return []
    given = [claim for move in plan.moves for claim in move.held]
    return [*beyond(plan.claims, given=given), *(claim for move in plan.moves for claim in move.claims)]
