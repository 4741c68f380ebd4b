"""Whose jobs end for a guarantee: scenarios on a full cluster, one cycle each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Any

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.cycle import admit
from dovetail.queue.limits.guarantees import capacity_of, loans_of, quota_of
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Room, commit, find_room
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running, without_pause
from dovetail.queue.quota_tree.tree_builder import tree_of
from dovetail.queue.verdicts import Verdict, Waits
from tests.core.engine.builders import add_node, make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.twin import CheckedCycle
from tests.seeds import seeds

# Name, namespace, GPUs of each worker, and more facts of a running job.
Runs = tuple[str, str, str, dict[str, Any]]


def runs(name: str, namespace: str, gpu: str = "4", **facts: Any) -> Runs:
    return name, namespace, gpu, facts


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    quotas: tuple[GPUQuota, ...]
    running: tuple[Runs, ...]
    waiting: tuple[tuple[str, str, str], ...]
    ends: dict[str, str]
    nodes: dict[str, int] = field(default_factory=lambda: {"n": 8})
    message: str = ""
    rules: Rules = field(default_factory=Rules)
    windows: tuple[Window, ...] = ()


A, B = make_quota("a", guaranteed=4), make_quota("b", guaranteed=4)
TREE = (
    make_quota("left", parents_only=True, guaranteed=8),
    make_quota("right", parents_only=True, guaranteed=8),
    make_quota("l1", parent="left", guaranteed=4),
    make_quota("l2", parent="left", guaranteed=4),
    make_quota("r1", parent="right", guaranteed=4),
    make_quota("r2", parent="right", guaranteed=4),
)
ACROSS = Rules(gap=10, min_run_seconds=0.0, between_quotas=True)
CASES = (
    Case(
        says="an owner gets its guarantee back from a borrower",
        quotas=(A, B),
        running=(runs("x", "b"), runs("y", "b")),
        waiting=(("mine", "a", "4"),),
        ends={"x": "mine"},
    ),
    Case(
        says="beyond its guarantee a quota takes nothing",
        quotas=(A, B),
        running=(runs("x", "b"), runs("y", "b")),
        waiting=(("mine", "a", "8"),),
        ends={},
    ),
    Case(
        says="a borrower keeps its own guarantee",
        quotas=(A, make_quota("b", guaranteed=8)),
        running=(runs("x", "b"), runs("y", "b")),
        waiting=(("mine", "a", "2"),),
        ends={},
    ),
    Case(
        says="a job outside the tree is a borrower",
        quotas=(A,),
        running=(runs("x", "stranger", "8"),),
        waiting=(("mine", "a", "1"),),
        ends={"x": "mine"},
    ),
    Case(
        says="the least lost work goes first",
        quotas=(A,),
        running=(runs("x", "b", run_seconds=500.0), runs("y", "b", run_seconds=100.0)),
        waiting=(("mine", "a", "4"),),
        ends={"y": "mine"},
    ),
    Case(
        says="a job that saves its work loses less than a younger one",
        quotas=(A,),
        running=(runs("x", "b", run_seconds=500.0, checkpoint_seconds=60.0), runs("y", "b", run_seconds=100.0)),
        waiting=(("mine", "a", "4"),),
        ends={"x": "mine"},
    ),
    Case(
        says="a job that may not be preempted stays, and the reason is said",
        quotas=(A, B),
        running=(runs("x", "b", "8", preemptible=False),),
        waiting=(("mine", "a", "4"),),
        ends={},
        message="Need 4 GPUs, only 0 available; GPUQuota a: it is guaranteed 4 GPUs, uses 0, and nothing comes back: "
        "no job of a borrower can end without taking from its own guarantee; 8 GPUs may not be preempted",
    ),
    Case(
        says="who is at a limit keeps no other job of its quota from what is guaranteed",
        quotas=(A, make_quota("each", per="User", users=[], limit={"gpus": 1})),
        running=(runs("ada0", "a", "1"), *(runs(name, "b", "1") for name in "stuvwxy")),
        waiting=(("ada1", "a", "1"), ("bob", "a", "1")),
        ends={"s": "bob"},
    ),
    Case(
        says="who is at two limits keeps no job from what is guaranteed that is at one of them",
        quotas=(
            make_quota("left", parents_only=True, guaranteed=8, limit={"gpus": 8}),
            make_quota("l1", parent="left", guaranteed=4),
            make_quota("l2", parent="left", guaranteed=2),
            make_quota("each", per="User", users=[], limit={"gpus": 1}),
        ),
        running=(runs("ada0", "l1", "1"), *(runs(name, "l2", "1") for name in "stuvwxy")),
        waiting=(("ada1", "l1", "1"), ("bob", "l1", "1")),
        ends={"s": "bob"},
    ),
    Case(
        says="a higher priority takes no quota below its guarantee, by several jobs either",
        quotas=(make_quota("a", guaranteed=0), B),
        running=(runs("x", "b", "2"), runs("y", "b", "2"), runs("z", "b", "2"), runs("w", "a", "2", priority=10)),
        waiting=(("mine", "a", "4"),),
        ends={},
        rules=ACROSS,
    ),
    Case(
        says="a higher priority takes what a quota has beyond its guarantee, and other jobs where that is not enough",
        quotas=(make_quota("a", guaranteed=0), B),
        running=(runs("x", "b", "2"), runs("y", "b", "2"), runs("z", "b", "2"), runs("w", "c", "2", run_seconds=900.0)),
        waiting=(("mine", "a", "4"),),
        ends={"w": "mine", "x": "mine"},
        rules=ACROSS,
    ),
    Case(
        says="of many jobs, those of a higher priority take no quota below its guarantee",
        quotas=(make_quota("a", guaranteed=0), make_quota("b", guaranteed=14)),
        running=(
            *(runs(f"{name}{n}", "b", "1") for name in "xy" for n in range(8)),
            *(runs(f"z{n}", "c", "1", run_seconds=900.0) for n in range(8)),
        ),
        waiting=(("mine", "a", "4"),),
        ends={f"z{n}": "mine" for n in range(4)},
        nodes={"n": 8, "m": 8, "o": 8},
        rules=ACROSS,
    ),
    Case(
        says="a quota at its guarantee by now keeps a job that was asked for one of a higher priority",
        quotas=(make_quota("a", guaranteed=0), make_quota("b", guaranteed=6)),
        running=(runs("x", "b", "4", yields_to="uid-mine"), runs("y", "b", "4", yields_to="uid-mine")),
        waiting=(("mine", "a", "4"),),
        ends={},
        rules=ACROSS,
    ),
    Case(
        says="a notice for a job that has gone gives its quota no room within its guarantee",
        quotas=(A, B),
        running=(runs("x", "b", yields_to="uid-gone"), runs("y", "c")),
        waiting=(("mine", "b", "4"),),
        ends={},
    ),
    Case(
        says="a notice for a job that has room by now gives its quota no room within its guarantee",
        quotas=(A, B),
        running=(runs("x", "b", yields_to="uid-one"), runs("y", "c")),
        waiting=(("one", "a", "4"), ("two", "b", "4")),
        ends={},
        nodes={"n": 8, "m": 4},
    ),
    Case(
        says="a job that was asked and is not necessary any more counts for its quota again",
        quotas=(A, B),
        running=(
            *(runs(name, "b", "4", yields_to="uid-one") for name in "xy"),
            *(runs(name, "c", "4") for name in "vw"),
        ),
        waiting=(("one", "a", "4"), ("two", "b", "4")),
        ends={"x": "one"},
        nodes={"n": 8, "m": 8},
    ),
    Case(
        says="two jobs that were asked for one end only if their quota keeps its guarantee without both",
        quotas=(make_quota("a", guaranteed=8), B),
        running=(
            runs("firm", "c", preemptible=False),
            runs("x", "b", yields_to="uid-mine"),
            runs("y", "b", yields_to="uid-mine"),
        ),
        waiting=(("mine", "a", "8"),),
        ends={},
        nodes={"n": 8, "m": 4},
    ),
    Case(
        says="several owners are served in one cycle",
        quotas=(make_quota("a", guaranteed=2), make_quota("b", guaranteed=2), make_quota("c", guaranteed=2)),
        running=(runs("x", "c", "2"), runs("y", "c", "2"), runs("z", "c", "2"), runs("w", "c", "2")),
        waiting=(("one", "a", "2"), ("two", "b", "2")),
        ends={"w": "one", "x": "two"},
    ),
    Case(
        says="where a job has left and its room does not suffice, another one ends too",
        quotas=(make_quota("a", guaranteed=8),),
        running=(runs("x", "b", left=True, yields_to="uid-mine"), runs("y", "b")),
        waiting=(("mine", "a", "8"),),
        ends={"y": "mine"},
    ),
    Case(
        says="where too few jobs have been asked, another one is asked in addition",
        quotas=(make_quota("a", guaranteed=8),),
        running=(runs("x", "b", yields_to="uid-mine"), runs("y", "b"), runs("z", "b"), runs("w", "b")),
        waiting=(("mine", "a", "8"),),
        ends={"x": "mine", "y": "mine"},
        nodes={"n": 8, "m": 8},
    ),
    Case(
        says="a job that has been asked and is not necessary any more may stay",
        quotas=(A,),
        running=(runs("x", "b", yields_to="uid-mine"), runs("y", "b", yields_to="uid-mine")),
        waiting=(("mine", "a", "4"),),
        ends={"x": "mine"},
    ),
    Case(
        says="where a job has left and no other may end, the reason is said",
        quotas=(make_quota("a", guaranteed=8),),
        running=(runs("x", "b", left=True, yields_to="uid-mine"), runs("y", "b", preemptible=False)),
        waiting=(("mine", "a", "8"),),
        ends={},
        message="nothing comes back: no job of a borrower can end without taking from its own guarantee; "
        "4 GPUs may not be preempted",
    ),
    Case(
        says="relatives lend within the department: another one is not asked",
        quotas=TREE,
        running=(
            runs("x", "l2", run_seconds=900.0),
            runs("y", "l2", run_seconds=800.0),
            runs("v", "r1"),
            runs("w", "r1"),
        ),
        waiting=(("mine", "l1", "4"),),
        ends={"y": "mine"},
        nodes={"n": 8, "m": 8},
    ),
)


def decide(
    case: Case,
    *,
    pause: Callable[[], None] = without_pause,
    negative_cache: NegativeCache | None = None,
    allowed: Mapping[str, int] | None = None,
) -> tuple[dict[str, str], list[Verdict]]:
    ledger = make_ledger(**case.nodes)
    running, counted, waiting = list[Running](), list[Counted](), list[Candidate]()
    for name, namespace, gpu, facts in case.running:
        job = make_job(name, gpu)
        found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={})
        assert isinstance(found, Room), name
        commit(found.claims, job=job, ledger=ledger)
        keys = tuple(claim.key for claim in found.claims)
        running.append(Running(**{"key": job.key, "priority": 0, "run_seconds": 100.0, "claims": keys} | facts))
        counted.append(count(job, namespace, preemptible=facts.get("preemptible", True)))
    for name, namespace, gpu in case.waiting:
        job = make_job(name, gpu)
        waiting.append(job)
        counted.append(count(job, namespace, queued=True))
    terms = {each.uid: limits_of(case.quotas, subject=each.subject, takes=Takes(milli=each.milli)) for each in counted}
    tree = tree_of(case.quotas, capacity=capacity_of(ledger))
    loans = loans_of(
        tree, counted=counted, pods=(), quota_of=lambda subject: quota_of(case.quotas, subject=subject), recent={}
    )
    negative_cache = negative_cache or NegativeCache()
    evictor = Evictor(
        running=running, rules=case.rules, pause=pause, negative_cache=negative_cache, allowed=allowed or {}
    )
    gate = LimitGate(terms, running=[each.uid for each in counted if not each.queued], loans=loans)
    windows = Windows(reservations=placed(case.windows, ledger=ledger, leaving=()), wanted=case.windows)
    look = CheckedCycle(ledger, sites={}, gate=gate, evictor=evictor, windows=windows)
    verdicts = [look.at(job) for job in look.in_order(waiting)]
    look.end()
    for order in evictor.orders.values():
        usual = case.rules.reclaim_grace_seconds if order.reclaim else case.rules.grace_seconds
        assert order.grace_seconds == usual, "no quota here has a reserve"
    ends = {key: order.by.key for key, order in evictor.orders.items()}
    return {key.removeprefix("uid-"): by.removeprefix("uid-") for key, by in ends.items()}, verdicts


def count(job: Candidate, namespace: str, *, queued: bool = False, preemptible: bool = True) -> Counted:
    """A job counts for the user of its name before a number."""
    subject = Subject(namespace=namespace, user=job.key.removeprefix("uid-").rstrip("0123456789"))
    milli = round(job.gpus * 1000)
    return Counted(uid=job.key, subject=subject, milli=milli, queued=queued, preemptible=preemptible)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_reclaim(case: Case) -> None:
    ends, verdicts = decide(case)
    assert ends == case.ends
    if case.message:
        first = verdicts[0]
        assert isinstance(first, Waits)
        assert case.message in first.message


def test_a_search_may_pause_before_each_placement_of_the_job() -> None:
    pauses: list[None] = []
    case = next(case for case in CASES if case.ends)
    assert decide(case, pause=lambda: pauses.append(None))[0] == case.ends
    assert len(pauses) >= 2


@pytest.mark.parametrize("rules", [Rules(), ACROSS], ids=["for a guarantee", "by priority"])
def test_a_lowered_guarantee_is_noticed_at_once(rules: Rules) -> None:
    own, negative_cache = make_quota("a", guaranteed=0 if rules.between_quotas else 4), NegativeCache()
    before = Case(
        says="",
        quotas=(own, make_quota("b", guaranteed=10)),
        running=(runs("firm", "c", preemptible=False), *(runs(f"x{n}", "b", "2") for n in range(6))),
        waiting=(("mine", "a", "4"),),
        ends={},
        nodes={"n": 8, "m": 8},
        rules=rules,
    )
    assert decide(before, negative_cache=negative_cache)[0] == {}
    after = replace(before, quotas=(own, make_quota("b", guaranteed=8)))
    assert len(decide(after, negative_cache=negative_cache)[0]) == 2


KEPT = Window(name="class", quota="vision", at_seconds=0.0, gpus=4, until="2026-01-01T18:00:00Z")


def test_who_gets_nothing_because_of_a_reservation_hears_of_it() -> None:
    """The jobs of borrowers hold eight GPUs. Four of them would suffice, and any four of the others are kept."""
    case = Case(
        says="",
        quotas=(make_quota("a", guaranteed=8),),
        running=(runs("x", "b"), runs("y", "b", preemptible=False)),
        waiting=(("mine", "a", "4"), ("more", "a", "4")),
        ends={},
        windows=(KEPT,),
    )
    ends, verdicts = decide(case)
    assert ends == {}
    for verdict in verdicts:
        assert isinstance(verdict, Waits)
        assert verdict.message.endswith(
            "the jobs of borrowers (4 GPUs) do not leave enough room for 4 GPUs: 4 GPUs are kept by GPUQuota vision "
            "until 2026-01-01T18:00:00Z (reservation class)"
        )
    harmless = replace(KEPT, name="course", gpus=2, nodes=["m"])
    _, verdicts = decide(replace(case, nodes={"n": 8, "m": 2}, windows=(harmless, KEPT)))
    assert isinstance(verdicts[0], Waits)
    assert verdicts[0].message.endswith("(reservation class)"), "the other one leaves the room"
    _, verdicts = decide(replace(case, windows=(replace(KEPT, gpus=0),), waiting=(("mine", "a", "8"),)))
    assert isinstance(verdicts[0], Waits)
    assert verdicts[0].message.endswith("(4 GPUs) do not leave enough room for 8 GPUs"), (
        "that is no reservation's fault"
    )


@pytest.mark.parametrize("at_a_limit", [False, True])
@pytest.mark.parametrize(("ends_in", "ends"), [(20.0, {"x": "mine"}), (100.0, {})])
def test_a_reservation_that_is_over_before_the_borrowers_have_left_is_in_nobodys_way(
    at_a_limit: bool, ends_in: float, ends: dict[str, str]
) -> None:
    top = make_quota("top", parents_only=True, **({"limit": {"gpus": 4}} if at_a_limit else {}))
    quotas = (top, make_quota("a", parent="top", guaranteed=4), make_quota("b", parent="top", guaranteed=0))
    case = Case(
        says="",
        quotas=quotas,
        running=(runs("x", "b"),),
        waiting=(("mine", "a", "4"),),
        ends={},
        nodes={"n": 4},
        windows=(replace(KEPT, until_seconds=ends_in),),
    )
    assert decide(case)[0] == ends


def test_jobs_of_every_size_hear_why_nothing_comes_back() -> None:
    case = Case(
        says="",
        quotas=(A, B),
        running=(runs("x", "b", preemptible=False), runs("y", "b", preemptible=False)),
        waiting=(("mine", "a", "2"), ("small", "a", "1"), ("large", "a", "4")),
        ends={},
    )
    ends, verdicts = decide(case)
    assert ends == {}
    for verdict in verdicts:
        assert isinstance(verdict, Waits)
        assert "uses 0, and nothing comes back: no job of a borrower can end" in verdict.message
        assert verdict.message.endswith("; 8 GPUs may not be preempted")


@seeds(80)
def test_no_quota_falls_below_its_guarantee_and_the_next_cycle_decides_the_same(seed: int) -> None:
    rng = Random(seed)
    guaranteed = {name: rng.randint(0, 5) for name in "abc"}
    sizes = list[int]()
    while sum(sizes) < 16:
        sizes.append(rng.choice([size for size in (1, 1, 2, 2, 4) if sum(sizes) + size <= 16]))
    running = [
        runs(f"r{at}", rng.choice("abcd"), str(size), priority=rng.choice([0, 5, 10, 30]))
        # The large ones first: then all have room.
        for at, size in enumerate(sorted(sizes, reverse=True))
    ]
    case = Case(
        says="",
        quotas=tuple(make_quota(name, guaranteed=gpus) for name, gpus in guaranteed.items()),
        running=tuple(running),
        waiting=tuple((f"w{n}", rng.choice("abcd"), rng.choice(["1", "2", "4", "8"])) for n in range(4)),
        ends={},
        nodes={"n": 8, "m": 8},
        rules=ACROSS if rng.random() < 0.8 else Rules(),
    )
    ends, _ = decide(case)
    team = {name: namespace for name, namespace, *_ in (*case.running, *case.waiting)}
    size_of = {name: int(gpu) for name, _, gpu, _ in case.running}
    for quota, gpus in guaranteed.items():
        used = sum(size for name, size in size_of.items() if team[name] == quota)
        lost = sum(size_of[name] for name, by in ends.items() if team[name] == quota != team[by])
        assert not lost or used - lost >= gpus
    notified = tuple(
        (name, namespace, gpu, facts | ({"yields_to": f"uid-{ends[name]}"} if name in ends else {}))
        for name, namespace, gpu, facts in case.running
    )
    assert decide(replace(case, running=notified))[0].items() >= ends.items()


# --- more owners than one cycle has time for --------------------------------------------------------------------------


class Crowd:
    """Three full nodes of a borrower, and so many jobs of an owner for which no end of a job makes room."""

    def __init__(self, hopeless: int, *, gpu: str = "0.5(T4)", windows: tuple[Window, ...] = ()) -> None:
        self.windows = windows
        self.quotas = (make_quota("a", guaranteed=24),)
        self.ledger = make_ledger(n=8, m=8, o=8)
        self.running: list[Running] = []
        self.counted: list[Counted] = []
        for number in range(3):
            job = make_job(f"x{number}", "8")
            found = find_room(job, ledger=self.ledger, fit_cache=FitCache(self.ledger), sites={})
            assert isinstance(found, Room)
            commit(found.claims, job=job, ledger=self.ledger)
            keys = tuple(claim.key for claim in found.claims)
            self.running.append(Running(key=job.key, priority=0, run_seconds=100.0, claims=keys))
            self.counted.append(count(job, "b"))
        # No two have the same shape, so that one search does not answer for all.
        self.waiting = [make_job(f"a{number:02d}", gpu, cpu=number + 1, at=number) for number in range(hopeless)]
        self.last = make_job("last", "1", at=59)
        self.negative_cache = NegativeCache()
        self.searches = 0

    def cycle(self, *, partly: bool = False) -> tuple[dict[str, str], list[Verdict]]:
        """Whose jobs end for whom, and the verdicts."""
        waiting = [*self.waiting, self.last]
        counted = [*self.counted, *(count(job, "a", queued=True) for job in waiting)]
        loans = loans_of(
            tree_of(self.quotas, capacity=capacity_of(self.ledger)),
            counted=counted,
            pods=(),
            quota_of=lambda subject: quota_of(self.quotas, subject=subject),
            recent={},
        )
        self.searches = 0
        evictor = Evictor(
            running=self.running, rules=Rules(), negative_cache=self.negative_cache, pause=self.count_search
        )
        windows = Windows(wanted=self.windows)
        gate = LimitGate({}, loans=loans)
        found = admit(waiting, ledger=self.ledger.copy(), sites={}, gate=gate, evictor=evictor, windows=windows)
        verdicts = list(islice(found, 1 if partly else None))
        return {key: order.by.key for key, order in evictor.orders.items()}, verdicts

    def count_search(self) -> None:
        """A hopeless search places its job once."""
        self.searches += 1

    def room_changes(self) -> None:
        """Something that concerns none of the jobs, after which no failed search is known any more."""
        add_node(self.ledger, f"v{len(self.ledger.nodes())}", gpus=0)


def test_an_owner_behind_many_that_get_nothing_has_its_turn_in_a_later_cycle() -> None:
    crowd = Crowd(hopeless=40)
    assert crowd.cycle()[0] == {}
    assert crowd.searches == 16
    assert crowd.negative_cache.is_behind
    for _ in range(2):
        crowd.room_changes()
        crowd.cycle(partly=True)
        ends, verdicts = crowd.cycle()
    assert list(ends.values()) == ["uid-last"]
    for verdict in verdicts[:-1]:
        assert isinstance(verdict, Waits)
        assert "nothing comes back" in verdict.message, "a job without a turn keeps its reason"


def test_a_job_without_a_turn_still_hears_of_the_reservation_that_keeps_it_waiting() -> None:
    crowd = Crowd(hopeless=20, gpu="0.5", windows=(replace(KEPT, gpus=24),))
    crowd.cycle()
    for _ in range(2):
        crowd.room_changes()
        _, verdicts = crowd.cycle()
        for verdict in verdicts:
            assert isinstance(verdict, Waits)
            assert verdict.message.endswith("(reservation class)"), verdict.message


def test_once_all_have_searched_and_nothing_changes_no_further_cycle_is_necessary() -> None:
    crowd = Crowd(hopeless=20)
    crowd.running = [replace(each, preemptible=each.key == "uid-x0") for each in crowd.running]
    crowd.last = make_job("last", "2(T4)", at=59)
    cycles = 0
    while cycles == 0 or crowd.negative_cache.is_behind:
        assert crowd.cycle()[0] == {}
        cycles += 1
        assert cycles < 10
    crowd.cycle()
    assert crowd.searches == 0, "failed searches are known"
