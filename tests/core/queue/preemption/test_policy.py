"""Who makes way for whom: scenarios, and properties against trying every set of victims."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.cycle import admit
from dovetail.queue.limits.guarantees import loans_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Room, commit, find_room
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import add_node, hold_devices, make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.quota_tree.builders import make_quota, make_tree

RULES = Rules(gap=10)
BOSS = make_job("boss", "4", priority=50)


def start(ledger: Ledger, job: Candidate, **facts: object) -> Running:
    """The job runs, on whatever is free."""
    found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room), job
    commit(found.claims, job=job, ledger=ledger)
    known = Running(
        key=job.key, priority=job.priority, run_seconds=1000.0, claims=tuple(claim.key for claim in found.claims)
    )
    return replace(known, **facts)  # type: ignore[arg-type]


def victims(*waiting: Candidate, ledger: Ledger, running: Sequence[Running], rules: Rules = RULES) -> dict[str, str]:
    """Who makes way for whom."""
    evictor = Evictor(running=running, rules=rules)
    list(admit(waiting, ledger=ledger.copy(), sites={}, evictor=evictor))
    return {key.removeprefix("uid-"): order.by.key.removeprefix("uid-") for key, order in evictor.orders.items()}


def test_an_order_by_priority_leaves_the_victim_the_grace_of_the_rules() -> None:
    ledger = make_ledger()
    add_node(ledger, "n", gpus=4)
    rules = replace(RULES, grace_seconds=17.0, reclaim_grace_seconds=5.0)
    evictor = Evictor(running=[start(ledger, make_job("x", "4", priority=10))], rules=rules)
    list(admit([BOSS], ledger=ledger.copy(), sites={}, evictor=evictor))
    assert {key: order.grace_seconds for key, order in evictor.orders.items()} == {"uid-x": 17.0}


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    running: tuple[tuple[Candidate, dict[str, object]], ...]
    leave: set[str]
    waiting: Candidate = BOSS
    rules: Rules = RULES
    nodes: dict[str, int] = field(default_factory=lambda: {"n": 8})


def low(name: str, gpu: str = "4", *, priority: int = 10, **facts: object) -> tuple[Candidate, dict[str, object]]:
    return make_job(name, gpu, priority=priority), facts


CASES = (
    Case(
        says="who may not, sends nobody away",
        running=(low("a"),),
        leave=set(),
        waiting=replace(BOSS, may_preempt=False),
    ),
    Case(says="one is enough", running=(low("a"), low("b", priority=20)), leave={"a"}),
    Case(says="the lowest priority goes", running=(low("a", priority=30), low("b", priority=20)), leave={"b"}),
    Case(
        says="among equals the youngest goes",
        running=(low("a", run_seconds=2000.0), low("b", run_seconds=500.0)),
        leave={"b"},
    ),
    Case(
        says="one old and large job rather than two young and small ones",
        running=(low("a", "4", run_seconds=9000.0), low("b", "2"), low("c", "2")),
        leave={"a"},
    ),
    Case(
        says="two where one is not enough",
        running=(low("a", "2"), low("b", "2"), low("c", "4", priority=45)),
        leave={"a", "b"},
    ),
    Case(
        says="a priority that is not low enough stays",
        running=(low("a", priority=41), low("b", priority=45)),
        leave=set(),
    ),
    Case(says="what has just begun stays", running=(low("a", run_seconds=10.0), low("b", priority=49)), leave=set()),
    Case(says="what made way often enough stays", running=(low("a", preempted=3), low("b", priority=49)), leave=set()),
    Case(
        says="nobody goes for what can never run",
        running=(low("a"), low("b")),
        waiting=make_job("boss", "9", priority=50),
        leave=set(),
    ),
    Case(says="nobody goes where it is not enough", running=(low("a", "2"), low("b", "6", priority=49)), leave=set()),
    Case(
        says="no more go than may within the hour",
        running=(low("a", "2"), low("b", "2"), low("c", "4", priority=45)),
        rules=replace(RULES, left=1),
        leave=set(),
    ),
    Case(says="nobody goes where it is switched off", running=(low("a"), low("b")), rules=Rules(gap=0), leave=set()),
    Case(
        says="a priority that is just low enough goes",
        running=(low("a", priority=41), low("b", priority=40)),
        leave={"b"},
    ),
    Case(says="what has run just long enough goes", running=(low("a", run_seconds=300.0), low("b", "4")), leave={"a"}),
    Case(
        says="what may make way once more goes",
        running=(low("a", preempted=2), low("b", priority=49)),
        leave={"a"},
    ),
    Case(
        says="as many go as may within the hour",
        running=(low("a", "2"), low("b", "2"), low("c", "4", priority=45)),
        rules=replace(RULES, left=2),
        leave={"a", "b"},
    ),
    Case(
        says="the largest group that need not be smaller: three for a job that needs three",
        running=(low("a", "2"), low("b", "2"), low("c", "2"), low("d", "2", priority=49)),
        waiting=make_job("boss", "6", priority=50),
        leave={"a", "b", "c"},
    ),
    Case(
        says="who makes way for another already is not asked again",
        running=(low("a", yields_to="uid-other"), low("b", priority=30)),
        leave={"b"},
    ),
    Case(
        says="a gang takes the place of jobs on several nodes",
        running=(low("a"), low("b"), low("c", priority=45)),
        waiting=make_job("boss", "4", workers=2, priority=50),
        nodes={"n": 4, "m": 4, "k": 4},
        leave={"a", "b"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_who_makes_way(case: Case) -> None:
    ledger = make_ledger(**case.nodes)
    running = [start(ledger, job, **facts) for job, facts in case.running]
    assert set(victims(case.waiting, ledger=ledger, running=running, rules=case.rules)) == case.leave


def test_nobody_goes_where_there_is_room() -> None:
    ledger = make_ledger(n=8)
    assert victims(BOSS, ledger=ledger, running=[start(ledger, make_job("a", "4"))]) == {}


def test_nobody_goes_where_an_end_makes_room_as_soon() -> None:
    ledger = make_ledger(n=4)
    found = find_room(job := make_job("a", "4"), ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    leaving = commit(found.claims, job=replace(job, run_seconds=40.0, limited=True), ledger=ledger)
    running = Running(key=job.key, priority=10, run_seconds=1000.0, claims=tuple(each.key for each in leaving))
    evictor = Evictor(running=[running], rules=RULES)
    list(admit([BOSS], ledger=ledger, sites={}, leaving=leaving, evictor=evictor))
    assert evictor.orders == {}


@pytest.mark.parametrize(("ends_in", "leaves"), [(60.0, False), (61.0, True)])
def test_an_end_is_awaited_that_comes_before_victims_could_have_left(ends_in: float, leaves: bool) -> None:
    """30 s of grace and Kubernetes' own 30 s: an end after these is later than a victim's."""
    ledger = make_ledger(n=8)
    ending, other = make_job("a", "4"), make_job("b", "4")
    found = find_room(ending, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    leaving = commit(found.claims, job=replace(ending, run_seconds=ends_in, limited=True), ledger=ledger)
    evictor = Evictor(running=[start(ledger, other)], rules=RULES)
    list(admit([BOSS], ledger=ledger, sites={}, leaving=leaving, evictor=evictor))
    assert set(evictor.orders) == ({other.key} if leaves else set())


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, ""),
        (1, "; 1 job of lower priority is preempted for it"),
        (2, "; 2 jobs of lower priority are preempted for it"),
    ],
)
def test_the_waiting_job_is_told_how_many_make_way_for_it(count: int, words: str) -> None:
    ledger = make_ledger(n=8)
    running = [start(ledger, make_job(name, "4" if count < 2 else "2")) for name in "abcd"[: 2 if count < 2 else 4]]
    evictor = Evictor(running=running, rules=RULES if count else Rules())
    other = make_job("other", "9", priority=49)
    list(admit([BOSS, other], ledger=ledger, sites={}, evictor=evictor))
    assert evictor.preemption_clause(BOSS.key).message == words
    assert evictor.preemption_clause(other.key).message == ""


def test_a_reservation_for_victims_is_for_when_they_have_left() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job("a", "4"))]
    evictor = Evictor(running=running, rules=replace(RULES, grace_seconds=12.0))
    (verdict,) = admit([BOSS], ledger=ledger, sites={}, evictor=evictor)
    assert isinstance(verdict, Waits)
    assert verdict.kept is not None
    assert verdict.kept.at_seconds == 42.0


def test_where_preemption_was_switched_off_those_who_were_told_stay() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job("a", "4"), yields_to=BOSS.key)]
    assert victims(BOSS, ledger=ledger, running=running, rules=Rules(gap=0)) == {}
    assert victims(replace(BOSS, may_preempt=False), ledger=ledger, running=running) == {}
    assert victims(BOSS, ledger=ledger, running=running) == {"a": "boss"}


def test_who_has_left_is_not_told_again() -> None:
    ledger = make_ledger(n=8)
    gone = start(ledger, make_job("a", "4"), yields_to=BOSS.key, left=True)
    still = start(ledger, make_job("b", "4"), yields_to=BOSS.key)
    large = replace(make_job("boss", "8", priority=50))
    assert victims(large, ledger=ledger, running=[gone, still]) == {"b": "boss"}


def test_pods_that_are_no_jobs_never_make_way() -> None:
    ledger = make_ledger(n=4)
    hold_devices(ledger, "n", 0, 1)
    running = [start(ledger, make_job("a", "2"))]
    assert victims(BOSS, ledger=ledger, running=running) == {}


def test_only_the_first_that_waits_sends_others_away() -> None:
    ledger = make_ledger(n=8)
    hold_devices(ledger, "n", 0, 1, 2, 3)
    running = [start(ledger, make_job("a", "2")), start(ledger, make_job("b", "2"))]
    first, second = make_job("first", "2", priority=60), make_job("second", "2", priority=50)
    assert set(victims(first, second, ledger=ledger, running=running).values()) == {"first"}


def test_those_who_were_told_stay_told_while_the_proof_holds() -> None:
    ledger = make_ledger(n=8)
    running = [start(ledger, make_job("a", "4"), yields_to=BOSS.key), start(ledger, make_job("b", "4"))]
    assert victims(BOSS, ledger=ledger, running=running) == {"a": "boss"}


def test_who_need_not_leave_any_more_is_told_so() -> None:
    ledger = make_ledger(n=8)
    running = [start(ledger, make_job(name, "2"), yields_to=BOSS.key) for name in "abc"]
    assert len(victims(BOSS, ledger=ledger, running=running)) == 1


def test_who_is_important_enough_by_now_does_not_make_way_any_more() -> None:
    ledger = make_ledger(n=8)
    told = start(ledger, make_job("a", "4", priority=45), yields_to=BOSS.key)
    other = start(ledger, make_job("b", "4", priority=30))
    assert victims(BOSS, ledger=ledger, running=[told, other]) == {"b": "boss"}
    assert victims(replace(BOSS, priority=39), ledger=ledger, running=[told, other]) == {}


def test_where_the_proof_is_gone_nobody_leaves() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job("a", "2"), yields_to=BOSS.key)]
    hold_devices(ledger, "n", 3)
    assert victims(BOSS, ledger=ledger, running=running) == {}


def test_the_place_is_kept_from_others_while_the_victims_leave() -> None:
    ledger = make_ledger(n=8)
    hold_devices(ledger, "n", 0, 1)
    running = [start(ledger, make_job("a", "4"))]
    evictor = Evictor(running=running, rules=RULES)
    waiting = [make_job("boss", "6", priority=50), make_job("small", "1", priority=10)]
    verdicts = list(admit(waiting, ledger=ledger, sites={}, evictor=evictor))
    assert set(evictor.orders) == {"uid-a"}
    assert [verdict.reason for verdict in verdicts if isinstance(verdict, Waits)] == ["Resources", "Priority"]


def test_once_all_have_left_it_is_let_go_though_their_pods_are_not_gone() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job(name, "2"), yields_to=BOSS.key, left=True) for name in "ab"]
    (verdict,) = admit([BOSS], ledger=ledger, sites={}, evictor=Evictor(running=running, rules=RULES))
    assert isinstance(verdict, Admitted)
    assert len(verdict.claims[0].devices) == 4


def test_before_the_last_has_left_it_waits() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job(name, "2"), yields_to=BOSS.key, left=name == "a") for name in "ab"]
    evictor = Evictor(running=running, rules=RULES)
    (verdict,) = admit([BOSS], ledger=ledger, sites={}, evictor=evictor)
    assert isinstance(verdict, Waits)
    assert set(evictor.orders) == {"uid-b"}


def test_nobody_else_is_sent_away_for_a_job_for_which_somebody_left_in_vain() -> None:
    ledger = make_ledger(n=8)
    left = start(ledger, make_job("a", "4"), yields_to=BOSS.key, left=True)
    other = start(ledger, make_job("b", "4"))
    for key in left.claims:
        ledger.release(key)
    hold_devices(ledger, "n", *(device.index for device in ledger.devices("n")[:1]))
    assert victims(BOSS, ledger=ledger, running=[left, other]) == {}


# --- properties ------------------------------------------------------------------------------------------------------

crowds = st.lists(
    st.tuples(st.sampled_from(["1", "2", "0.5"]), st.sampled_from([10, 20, 45]), st.sampled_from([0.0, 400.0, 800.0])),
    max_size=7,
)


def crowded(crowd: list[tuple[str, int, float]]) -> tuple[Ledger, list[Running]]:
    """A cluster on which those of the crowd run that had room."""
    ledger, running = make_ledger(a=4, b=2), []
    for number, (asked, priority, seconds) in enumerate(crowd):
        job = make_job(f"r{number}", asked, priority=priority)
        if isinstance(find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={}), Room):
            running.append(start(ledger, job, run_seconds=seconds))
    return ledger, running


@settings(max_examples=60, deadline=None)
@given(crowds, st.sampled_from(["1", "2", "3", "4"]), st.integers(1, 2))
def test_the_preemptor_starts_and_no_smaller_set_would_do(
    crowd: list[tuple[str, int, float]], gpu: str, workers: int
) -> None:
    ledger, running = crowded(crowd)
    boss = make_job("boss", gpu, workers=workers, priority=50)
    chosen = {f"uid-{name}" for name in victims(boss, ledger=ledger, running=running)}
    told = [each for each in running if each.key in chosen]
    assert all(each.priority <= 40 and each.run_seconds >= 300 for each in told)
    if chosen:
        assert not starts(boss, ledger=ledger, without=[])
        assert starts(boss, ledger=ledger, without=told)
    potential_victims = [each for each in running if each.priority <= 40 and each.run_seconds >= 300]
    sizes = [
        size
        for size in range(len(potential_victims) + 1)
        if any(starts(boss, ledger=ledger, without=each) for each in combinations(potential_victims, size))
    ]
    assert len(chosen) == (sizes[0] if sizes else 0)


def starts(job: Candidate, *, ledger: Ledger, without: Sequence[Running]) -> bool:
    left = ledger.copy()
    for each in without:
        for key in each.claims:
            left.release(key)
    return isinstance(find_room(job, ledger=left, fit_cache=FitCache(left), sites={}), Room)


def test_many_small_jobs_make_way_without_every_set_of_them_being_tried() -> None:
    ledger = make_ledger(**{f"n{number:02d}": 8 for number in range(12)})
    running = [start(ledger, make_job(f"r{number:02d}", "1"), run_seconds=500.0 + number) for number in range(96)]
    boss = make_job("boss", "8", priority=50)
    chosen = {f"uid-{name}" for name in victims(boss, ledger=ledger, running=running)}
    assert len(chosen) == 8
    assert starts(boss, ledger=ledger, without=[each for each in running if each.key in chosen])


def test_of_many_jobs_the_one_that_is_large_enough_goes_rather_than_many_young_ones() -> None:
    ledger = make_ledger(large=8, **{f"n{number:02d}": 8 for number in range(9)})
    old = start(ledger, make_job("old", "8"), run_seconds=9000.0)
    crowd = [start(ledger, make_job(f"r{number:02d}", "1"), run_seconds=500.0 + number) for number in range(72)]
    boss = make_job("boss", "8", priority=50)
    assert victims(boss, ledger=ledger, running=[old, *crowd]) == {"old": "boss"}


def test_of_many_jobs_the_fewest_on_one_node_go_rather_than_the_youngest_of_all() -> None:
    """Two of four GPUs on the last node; the young ones hold one each."""
    ledger = make_ledger(**{f"n{number:02d}": 8 for number in range(9)}, z=8)
    crowd = [start(ledger, make_job(f"r{number:02d}", "1"), run_seconds=500.0 + number) for number in range(72)]
    pair = [start(ledger, make_job(name, "4"), run_seconds=9000.0) for name in ("p", "q")]
    boss = make_job("boss", "8", priority=50)
    assert set(victims(boss, ledger=ledger, running=[*crowd, *pair])) == {"p", "q"}


def test_of_many_jobs_those_on_nodes_that_do_not_serve_it_stand_in_nobodys_way() -> None:
    ledger = make_ledger(**{f"n{number:02d}": 2 for number in range(40)})
    add_node(ledger, "t", gpus=2, model="T4")
    crowd = [start(ledger, make_job(f"r{number:02d}", "1"), run_seconds=500.0) for number in range(80)]
    old = [start(ledger, make_job(name, "1"), run_seconds=9000.0) for name in ("p", "q")]
    boss = make_job("boss", "2(T4)", priority=50)
    assert set(victims(boss, ledger=ledger, running=[*crowd, *old])) == {"p", "q"}


# --- beside what is kept for a time ----------------------------------------------------------------------------------

KEPT = Window(name="class", quota="vision", at_seconds=0.0, until_seconds=7200.0, gpus=2, until="later")


def leaves_beside(
    boss: Candidate, *, ledger: Ledger, running: list[Running], window: Window = KEPT
) -> tuple[set[str], bool]:
    """Who is told to leave beside what is kept, and whether the boss starts once they have left."""

    def look(running: list[Running], *, ledger: Ledger) -> tuple[set[str], bool]:
        windows = Windows(reservations=placed([window], ledger=ledger, leaving=()), wanted=[window])
        evictor = Evictor(running=running, rules=RULES)
        (verdict,) = admit([boss], ledger=ledger.copy(), sites={}, evictor=evictor, windows=windows)
        return set(evictor.orders), isinstance(verdict, Admitted)

    told, _ = look(running, ledger=ledger)
    left = [replace(each, yields_to=boss.key, left=True) for each in running if each.key in told]
    for key in (key for each in left for key in each.claims):
        ledger.release(key)
    stay = [each for each in running if each.key not in told]
    return told, look([*stay, *(replace(each, claims=()) for each in left)], ledger=ledger)[1]


def test_nobody_makes_way_for_a_job_that_what_is_kept_for_others_would_keep_back_then() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job("a", "2"))]
    assert leaves_beside(BOSS, ledger=ledger, running=running) == (set(), False)


def test_nobody_makes_way_where_others_have_what_they_leave() -> None:
    """More is kept than is free: what the victims leave goes to those it is kept for."""
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job(name, "2")) for name in "ab"]
    boss = make_job("boss", "2", priority=50)
    assert leaves_beside(boss, ledger=ledger, running=running, window=replace(KEPT, gpus=4)) == (set(), False)


def test_others_make_way_once_nothing_is_kept_any_more_that_was_in_the_way() -> None:
    """Nothing else changes: what is remembered of the search in vain is no answer to this one."""
    ledger, negative_cache, told = make_ledger(n=4), NegativeCache(), []
    running = [start(ledger, make_job("a", "2"))]
    kept = Windows(reservations=placed([KEPT], ledger=ledger, leaving=()), wanted=[KEPT])
    for windows in (kept, kept, Windows()):
        evictor = Evictor(running=running, rules=RULES, negative_cache=negative_cache)
        list(admit([BOSS], ledger=ledger.copy(), sites={}, evictor=evictor, windows=windows))
        told.append(set(evictor.orders))
    assert told == [set(), set(), {"uid-a"}]


def test_others_make_way_for_a_job_that_then_has_room_beside_what_is_kept() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job("a", "2"))]
    boss = make_job("boss", "2", priority=50)
    assert leaves_beside(boss, ledger=ledger, running=running) == ({"uid-a"}, True)


def test_what_is_kept_does_not_concern_a_job_that_ends_before() -> None:
    ledger = make_ledger(n=4)
    running = [start(ledger, make_job("a", "2"))]
    boss = make_job("boss", "4", priority=50, hours=0.5)
    later = replace(KEPT, at_seconds=3600.0)
    assert leaves_beside(boss, ledger=ledger, running=running, window=later) == ({"uid-a"}, True)


@settings(max_examples=80, deadline=None)
@given(crowds, st.sampled_from(["1", "2", "3", "4"]), st.integers(1, 6), st.booleans())
def test_whoever_leaves_beside_what_is_kept_leaves_for_a_start(
    crowd: list[tuple[str, int, float]], gpu: str, kept: int, begun: bool
) -> None:
    ledger, running = crowded(crowd)
    window = replace(KEPT, gpus=kept, at_seconds=0.0 if begun else 600.0)
    told, starts_then = leaves_beside(make_job("boss", gpu, priority=50), ledger=ledger, running=running, window=window)
    assert starts_then or not told


# --- the whole way: told, something happens, proven anew, left, started ----------------------------------------------

EVENTS = ("nothing", "a victim ends", "others come", "a stranger comes", "an urgent job comes", "the boss goes")


def after(
    event: str, *, ledger: Ledger, running: list[Running], told: set[str]
) -> tuple[list[Running], list[Candidate]]:
    """What runs and what waits once that has happened while the victims know that they are to leave."""
    waiting = [BOSS]
    match event:
        case "a victim ends":
            ended = next(each for each in running if each.key in told)
            for key in ended.claims:
                ledger.release(key)
            running = [each for each in running if each is not ended]
        case "others come":
            waiting += [make_job(f"new{number}", "1", priority=10, at=9) for number in range(3)]
        case "a stranger comes":
            free = [device.index for device in ledger.devices("a") if device.uuid not in held(ledger)]
            hold_devices(ledger, "a", *free[:1])
        case "an urgent job comes":
            waiting += [make_job("urgent", "3", priority=200)]
        case "the boss goes":
            waiting = []
    return running, waiting


def held(ledger: Ledger) -> set[str]:
    return {device.uuid for claim in ledger.claims() for device in claim.devices}


@settings(max_examples=80, deadline=None)
@given(crowds, st.sampled_from(EVENTS))
def test_nobody_leaves_for_nothing_whatever_happens_meanwhile(crowd: list[tuple[str, int, float]], event: str) -> None:
    ledger, running = crowded(crowd)
    told = {f"uid-{name}": by for name, by in victims(BOSS, ledger=ledger, running=running).items()}
    running = [replace(each, yields_to=BOSS.key) if each.key in told else each for each in running]
    if told:
        running, waiting = after(event, ledger=ledger, running=running, told=set(told))
        proof = Evictor(running=running, rules=RULES)
        list(admit(waiting, ledger=ledger.copy(), sites={}, evictor=proof))
        leaving = {key for key, order in proof.orders.items() if order.by.key == BOSS.key and key in told}
        running = [replace(each, left=True) if each.key in leaving else replace(each, yields_to="") for each in running]
        verdicts = admit(waiting, ledger=ledger.copy(), sites={}, evictor=Evictor(running=running, rules=RULES))
        started = {verdict.key for verdict in verdicts if isinstance(verdict, Admitted)}
        assert not leaving or BOSS.key in started


def test_of_many_jobs_only_those_on_the_nodes_of_its_site_make_way() -> None:
    """Sixteen jobs of one GPU: too many to try every set of them."""
    ledger = make_ledger(a=8, b=8)
    running = []
    for node in "ab":
        for index in range(8):
            key = f"uid-{node}{index}"
            hold_devices(ledger, node, index, key=key)
            running.append(Running(key=key, priority=10, run_seconds=1000.0, claims=(key,)))
    evictor = Evictor(running=running, rules=RULES)
    list(admit([replace(BOSS, site="b")], ledger=ledger, sites={"b": ["b", "gone"]}, evictor=evictor))
    assert [key.removeprefix("uid-")[0] for key in evictor.orders] == ["b"] * 4


@pytest.mark.parametrize("least", [1, None])
def test_a_job_for_which_others_leave_counts_with_the_workers_with_which_it_will_start(least: int | None) -> None:
    ledger, whose = make_ledger(a=8), Subject(namespace="team", user="ada")
    low = start(ledger, make_job("low", "8", priority=10))
    workers = 1 if least is None else 3
    job = replace(make_job("it", "8", workers=workers, priority=60), least=least)
    counted = [
        Counted(uid=job.key, subject=whose, milli=8000 * workers, queued=True, workers=workers, least=least),
        Counted(uid=low.key, subject=whose, milli=8000),
    ]
    tree = make_tree(make_quota("team", guaranteed=32), gpus=32)
    evictor = Evictor(running=[low], rules=RULES)
    evictor.loans = loans = loans_of(tree, counted=counted, pods=(), quota_of=lambda _: "team", recent={})
    made = evictor.preempt(job, ledger=ledger, sites={}, otherwise=None)
    assert made is not None
    assert len(made.claims) == 1
    assert loans.used(0)[0] == 8000, "what leaves counts no more, and what starts does"


def test_the_end_of_a_job_loses_what_it_has_not_saved_and_no_more_than_it_ran() -> None:
    known = Running(key="x", priority=0, run_seconds=500.0, claims=())
    lost = [replace(known, checkpoint_seconds=each).lost_seconds for each in (None, 60.0, 900.0)]
    assert lost == [500, 60, 500]
